//! A thread's heap: the bins that its allocations come from, and the SuperSlabs it owns.

use crate::classes::{CLASSES_MAX, Classes, STEPS};
use crate::fork::Stage;
use crate::geometry::Geometry;
use crate::home::{NO_HOME, quick_word};
use crate::limits::HEAP_BYTES;
use crate::link::Link;
use crate::memory::Memory;
use crate::meta::SlabId;
use crate::options::Checks;
use crate::room::{Noted, Unfit};

/// One size class of a heap: what its fast path does not look at.
#[derive(Clone, Copy)]
pub(crate) struct Bin {
    /// First unit of the active slab.
    pub(crate) unit: u32,
    /// Empty slabs kept in the list of partial ones.
    pub(crate) warm: u32,
    /// First slab with free blocks.
    pub(crate) partial_head: SlabId,
    /// Last slab with free blocks.
    pub(crate) partial_tail: SlabId,
    /// Whether there is an active slab.
    pub(crate) has_active: bool,
}

impl Bin {
    const EMPTY: Bin =
        Bin { unit: 0, warm: 0, partial_head: SlabId::NONE, partial_tail: SlabId::NONE, has_active: false };
}

/// Places of the arrays that a class indexes on the fast path: as many as a byte can name, so that none is out of bounds.
pub(crate) const PLACES: usize = 256;

/// A thread's heap. Drivers pass it by `&mut`; the policy never looks for one.
///
/// What the fast paths read stands apart from the rest, by class: in one array what a bin has ready, in another where
/// that lies. So the bins in use fill few cache lines.
pub struct ThreadHeap<M: Memory> {
    /// What the home words of slabs are compared with that this heap frees into quickly.
    pub(crate) quick: u32,
    pub(crate) id: u32,
    /// The class of a request by 8-byte steps, a copy of [`Classes::steps`].
    pub(crate) steps: [u8; STEPS],
    /// By class: blocks of the active slab, ready to be handed out; the slab counts them as used.
    pub(crate) ready: [Link; PLACES],
    /// By class: the SuperSlab of the active slab; means nothing while there is none.
    pub(crate) sources: [M::SuperSlab; PLACES],
    pub(crate) bins: [Bin; CLASSES_MAX],
    /// Owned SuperSlabs with free units, by ordinal (ordinal + 1; 0 ends).
    pub(crate) room_head: u32,
    /// The last of them.
    pub(crate) room_tail: u32,
    /// Which of them need not be looked at for what.
    pub(crate) unfit: Unfit,
    /// Some of them.
    pub(crate) noted: Noted,
    /// All owned SuperSlabs (ordinal + 1; 0 ends).
    pub(crate) own_head: u32,
    /// Owned SuperSlabs with spans to purge, oldest first.
    pub(crate) purge_head: u32,
    /// The newest of them.
    pub(crate) purge_tail: u32,
    /// Whether a slow path is changing it.
    pub(crate) stage: Stage,
}

/// A block that a heap has ready.
pub struct Ready<M: Memory> {
    pub(crate) class: usize,
    pub(crate) superslab: M::SuperSlab,
    pub(crate) start: u32,
}

impl<M: Memory> ThreadHeap<M> {
    const FITS: () = assert!(
        size_of::<ThreadHeap<M>>() as u64 + 192 <= HEAP_BYTES,
        "the heap, what a world keeps beside it, its mark and its mail word fill the same pages in every world"
    );

    /// A heap that has nothing, owns nothing and is nobody's: requests and frees take the slow path with it.
    pub const fn nobodys(nowhere: M::SuperSlab) -> ThreadHeap<M> {
        const { Self::FITS };
        ThreadHeap {
            id: u32::MAX,
            quick: 0,
            steps: [0; STEPS],
            ready: [Link::NONE; PLACES],
            sources: [nowhere; PLACES],
            bins: [Bin::EMPTY; CLASSES_MAX],
            room_head: 0,
            room_tail: 0,
            unfit: Unfit::NOTHING,
            noted: Noted::NOTHING,
            own_head: 0,
            purge_head: 0,
            purge_tail: 0,
            stage: Stage::settled(),
        }
    }

    /// An empty heap in slot `id`.
    pub(crate) fn new(mem: &M, id: u32, classes: &Classes, checks: Checks) -> ThreadHeap<M> {
        let nobodys = ThreadHeap::nobodys(mem.superslab(0));
        let quick = match checks {
            Checks::Quick => quick_word(id),
            Checks::Full => NO_HOME,
        };
        ThreadHeap { id, quick, steps: *classes.steps(), ..nobodys }
    }

    /// The heap's slot.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What the owner word of its SuperSlabs holds.
    #[inline(always)]
    pub(crate) fn owner_word(&self) -> u64 {
        u64::from(self.id) + 1
    }

    /// The block that a plain request for so many bytes would get at once, without a step of any slow path.
    #[inline(always)]
    pub fn ready(&self, geometry: &impl Geometry, bytes: u64) -> Option<Ready<M>> {
        if bytes > Classes::STEP_BYTES_MAX || geometry.header_bytes() != 0 {
            return None;
        }
        self.ready_in(geometry, usize::from(self.steps[Classes::step_of(bytes)]))
    }

    /// The same for a class, which is below [`PLACES`].
    #[inline(always)]
    pub(crate) fn ready_in(&self, geometry: &impl Geometry, class: usize) -> Option<Ready<M>> {
        let start = self.ready[class].offset(geometry.link_bias())?;
        Some(Ready { class, superslab: self.sources[class], start })
    }
}

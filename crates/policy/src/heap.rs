//! A thread's heap: the bins that its allocations come from, and the SuperSlabs it owns.

use crate::classes::CLASSES_MAX;
use crate::fork::Stage;
use crate::limits::HEAP_BYTES;
use crate::link::Link;
use crate::memory::Memory;
use crate::meta::SlabId;

/// One size class of a heap.
pub(crate) struct Bin<M: Memory> {
    /// Blocks of the active slab, ready to be handed out; the slab counts them as used.
    pub(crate) free: Link,
    /// First unit of the active slab.
    pub(crate) unit: u32,
    /// SuperSlab of the active slab; means nothing while `has_active` is false.
    pub(crate) superslab: M::SuperSlab,
    /// Whether there is an active slab.
    pub(crate) has_active: bool,
    /// Empty slabs kept in the list of partial ones.
    pub(crate) warm: u32,
    /// First slab with free blocks.
    pub(crate) partial_head: SlabId,
    /// Last slab with free blocks.
    pub(crate) partial_tail: SlabId,
}

/// A thread's heap. Drivers pass it by `&mut`; the policy never looks for one.
pub struct ThreadHeap<M: Memory> {
    pub(crate) id: u32,
    pub(crate) bins: [Bin<M>; CLASSES_MAX],
    /// Owned SuperSlabs with free units, by ordinal (ordinal + 1; 0 ends).
    pub(crate) room_head: u32,
    /// All owned SuperSlabs (ordinal + 1; 0 ends).
    pub(crate) own_head: u32,
    /// Owned SuperSlabs with spans to purge, oldest first.
    pub(crate) purge_head: u32,
    /// The newest of them.
    pub(crate) purge_tail: u32,
    /// Whether a slow path is changing it.
    pub(crate) stage: Stage,
}

impl<M: Memory> ThreadHeap<M> {
    const FITS: () = assert!(
        size_of::<ThreadHeap<M>>() as u64 + 128 <= HEAP_BYTES,
        "the heap, its mark and its mail word fill the same pages in every world"
    );

    /// An empty heap in slot `id`.
    pub(crate) fn new(mem: &M, id: u32) -> ThreadHeap<M> {
        const { Self::FITS };
        let nowhere = mem.superslab(0);
        ThreadHeap {
            id,
            bins: core::array::from_fn(|_| Bin {
                free: Link::NONE,
                unit: 0,
                superslab: nowhere,
                has_active: false,
                warm: 0,
                partial_head: SlabId::NONE,
                partial_tail: SlabId::NONE,
            }),
            room_head: 0,
            own_head: 0,
            purge_head: 0,
            purge_tail: 0,
            stage: Stage::settled(),
        }
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
}

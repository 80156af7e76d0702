//! A thread's heap: the bins that serve its allocations, and the SuperSlabs that it owns.

mod adopt;
pub mod alloc;
pub mod available;
pub mod classes;
pub mod fork;
pub mod free;
mod free_order;
pub mod front_cache;
mod huge_fill;
mod huge_heaps;
pub mod invalid_free;
pub mod link;
pub mod own;
pub mod owner_tag;
mod realloc;
pub mod remote;
mod slab;
mod slab_choice;
pub mod span;

use crate::arena::backlog::Backlog;
use crate::geometry::Geometry;
use crate::heap::available::{AvailableHints, FailedSearch};
use crate::heap::classes::{CLASSES_MAX, Classes, STEPS};
use crate::heap::fork::SlowPathFlag;
use crate::heap::link::Link;
use crate::heap::owner_tag::{NO_FAST_FREE, fast_free_tag};
use crate::memory::Memory;
use crate::metadata::meta::SlabId;
use crate::policy::process::Checks;

/// The part of a heap's per-class state that the fast path does not read.
#[derive(Clone, Copy)]
pub(crate) struct Bin {
    /// First slice of the active slab.
    pub(crate) slice: u32,
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
        Bin { slice: 0, warm: 0, partial_head: SlabId::NONE, partial_tail: SlabId::NONE, has_active: false };
}

/// Length of the arrays that the fast path indexes by class: one slot for every value of a byte, so that no bounds
/// check is needed.
pub(crate) const CLASS_SLOTS: usize = 256;
/// The slot of no class: its list of free blocks is always empty.
const NO_CLASS: u8 = u8::MAX;
const _: () = assert!(CLASSES_MAX <= NO_CLASS as usize);

/// A thread's heap. Callers pass it by `&mut`; the policy never looks it up.
///
/// The fields that the fast paths read are in separate arrays, indexed by class: the free lists in `ready`, their
/// SuperSlabs in `sources`, and where their links are in `link_places`. So the bins in use occupy few cache lines.
pub struct ThreadHeap<M: Memory> {
    /// If this equals the owner tag of a block's slice, the free takes the fast path.
    pub(crate) fast_free_tag: u32,
    /// If this equals it instead, and the policy has front caches, the block goes to the front cache.
    pub(crate) fast_cache_tag: u32,
    pub(crate) id: u32,
    /// The class of a request, by steps of 8 bytes: a copy of [`Classes::steps`] if the fast path serves plain requests,
    /// else [`NO_CLASS`].
    pub(crate) steps: [u8; STEPS],
    /// By class: the list of free blocks taken from the active slab. The slab counts them as used.
    pub(crate) ready: [Link; CLASS_SLOTS],
    /// By class: the SuperSlab of the active slab; arbitrary while there is none.
    pub(crate) sources: [M::SuperSlab; CLASS_SLOTS],
    /// By class: where the links of the active slab are.
    pub(crate) link_places: [M::LinkPlace; CLASS_SLOTS],
    pub(crate) bins: [Bin; CLASSES_MAX],
    /// By class: blocks in the front cache.
    pub(crate) front_counts: [u8; CLASS_SLOTS],
    /// Owned SuperSlabs with free slices, by ordinal (ordinal + 1; 0 ends).
    pub(crate) available_head: u32,
    /// The last SuperSlab in that list.
    pub(crate) available_tail: u32,
    /// The failed search that the heap remembers.
    pub(crate) failed_search: FailedSearch,
    /// Hints that shorten the search for a SuperSlab's predecessor in that list.
    pub(crate) available_hints: AvailableHints,
    /// All owned SuperSlabs (ordinal + 1; 0 ends).
    pub(crate) own_head: u32,
    /// Owned SuperSlabs with spans to purge, oldest first.
    pub(crate) purge_head: u32,
    /// The newest SuperSlab in that queue.
    pub(crate) purge_tail: u32,
    /// When SuperSlabs were added to that queue, if a decay curve purges them.
    pub(crate) purge_backlog: Backlog,
    /// Set while a slow path changes the heap.
    pub(crate) slow_path: SlowPathFlag,
}

/// A block that the fast path can allocate.
pub struct Ready<M: Memory> {
    pub(crate) class: usize,
    pub(crate) superslab: M::SuperSlab,
    pub(crate) start: u32,
}

impl<M: Memory> Ready<M> {
    /// The block's class.
    #[inline(always)]
    pub fn class(&self) -> usize {
        self.class
    }
}

impl<M: Memory> ThreadHeap<M> {
    /// The empty heap, a sentinel for threads without a heap: every request and free takes the slow path.
    pub const fn empty(nowhere: M::SuperSlab) -> ThreadHeap<M> {
        ThreadHeap {
            id: u32::MAX,
            fast_free_tag: NO_FAST_FREE,
            fast_cache_tag: NO_FAST_FREE,
            steps: [0; STEPS],
            ready: [Link::NONE; CLASS_SLOTS],
            sources: [nowhere; CLASS_SLOTS],
            link_places: [M::NO_LINKS; CLASS_SLOTS],
            bins: [Bin::EMPTY; CLASSES_MAX],
            front_counts: [0; CLASS_SLOTS],
            available_head: 0,
            available_tail: 0,
            failed_search: FailedSearch::NONE,
            available_hints: AvailableHints::NONE,
            own_head: 0,
            purge_head: 0,
            purge_tail: 0,
            purge_backlog: Backlog::new(),
            slow_path: SlowPathFlag::new(),
        }
    }

    /// Makes an empty heap that of slot `id`.
    pub(crate) fn open(&mut self, id: u32, geometry: &impl Geometry, checks: Checks) {
        let tag = match checks {
            Checks::Quick => fast_free_tag(id),
            Checks::Full => NO_FAST_FREE,
        };
        let is_cached = geometry.front_cache() != 0;
        (self.fast_free_tag, self.fast_cache_tag) = if is_cached { (NO_FAST_FREE, tag) } else { (tag, NO_FAST_FREE) };
        let is_plain = !is_cached && geometry.header_bytes() == 0;
        if is_plain {
            self.steps.copy_from_slice(geometry.classes().steps());
        } else {
            self.steps.fill(NO_CLASS);
        }
        self.id = id;
    }

    /// The heap's slot.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The owner word of the heap's SuperSlabs.
    #[inline(always)]
    pub(crate) fn owner_word(&self) -> u64 {
        u64::from(self.id) + 1
    }

    /// The block with which the fast path serves a plain request of `bytes` bytes, if there is one.
    #[inline(always)]
    pub fn ready(&self, geometry: &impl Geometry, bytes: u64) -> Option<Ready<M>> {
        if bytes > Classes::STEP_BYTES_MAX {
            return None;
        }
        self.ready_in(geometry, usize::from(self.steps[Classes::step_of(bytes)]))
    }

    /// As [`ready`](Self::ready), for a class below [`CLASS_SLOTS`].
    #[inline(always)]
    pub(crate) fn ready_in(&self, geometry: &impl Geometry, class: usize) -> Option<Ready<M>> {
        let start = self.ready[class].offset(geometry.link_bias())?;
        Some(Ready { class, superslab: self.sources[class], start })
    }
}

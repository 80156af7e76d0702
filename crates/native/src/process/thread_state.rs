//! What a thread has of an allocator: its heap, and beside it what its fast paths must know of the arena.

use std::ptr::NonNull;

use hksim_policy::Geometry;
use hksim_policy::memory::Block;

use super::{Heap, World};

/// A thread's place at an allocator. Lies at the start of its heap's map; a thread without one points to [`EMPTY`].
#[repr(C)]
pub(crate) struct ThreadState {
    /// Address of the arena's first byte.
    arena: usize,
    /// Length of the arena; 0 at nobody's desk, so that no address lies in it.
    arena_bytes: usize,
    /// The thread's heap. Nobody's has no block and is never written.
    pub(super) heap: Heap,
}

// SAFETY: shared is nobody's desk alone, which nobody writes.
unsafe impl Sync for ThreadState {}

/// The desk of every thread that has none of its own: one comparison finds that out and that there is nothing to be had fast.
pub(crate) static EMPTY: ThreadState = ThreadState { arena: 0, arena_bytes: 0, heap: Heap::empty(NonNull::dangling()) };

const _: () =
    assert!(size_of::<ThreadState>() as u64 + 128 <= hksim_policy::layout::HEAP_BYTES, "a desk fits into its map");

impl ThreadState {
    /// The desk for a heap of an allocator in this memory.
    pub(super) fn new(mem: &World, heap: Heap) -> ThreadState {
        ThreadState { arena: mem.arena().as_ptr() as usize, arena_bytes: mem.arena_bytes(), heap }
    }

    /// The block at an address that [`World::address`](crate::memory::MmapMemory::address) gave; `None` outside the arena.
    #[inline(always)]
    pub(super) fn block_at(&self, geometry: &impl Geometry, address: *mut u8) -> Option<Block<NonNull<u8>>> {
        let from_arena = (address as usize).wrapping_sub(self.arena);
        if from_arena >= self.arena_bytes {
            return None;
        }
        // The arena begins at a multiple of SuperSlabs.
        let offset = from_arena & ((1 << geometry.superslab_shift()) - 1);
        // SAFETY: the SuperSlab's start lies in the arena, which does not begin at 0.
        let superslab = unsafe { NonNull::new_unchecked(address.sub(offset)) };
        Some(Block { superslab, offset: offset as u32 })
    }
}

//! The state of a thread: its heap, and the arena's range for the fast paths.

use std::ptr::NonNull;

use hksim_policy::Geometry;
use hksim_policy::memory::Block;

use super::{Heap, ProcessMemory};

/// A thread's state in an allocator, at the start of its heap's slot. A thread without a heap uses [`EMPTY`].
#[repr(C)]
pub(crate) struct ThreadState {
    /// Address of the arena's first byte.
    arena: usize,
    /// Length of the arena; 0 in [`EMPTY`], so that no address is inside it.
    arena_bytes: usize,
    /// The thread's heap. The heap of [`EMPTY`] has no blocks and is never written.
    pub(super) heap: Heap,
}

// SAFETY: only `EMPTY` is shared between threads, and it is never written.
unsafe impl Sync for ThreadState {}

/// Sentinel for threads without a heap: forces the slow path, so that the fast paths need no extra check.
pub(crate) static EMPTY: ThreadState = ThreadState { arena: 0, arena_bytes: 0, heap: Heap::empty(NonNull::dangling()) };

const _: () =
    assert!(size_of::<ThreadState>() as u64 + 128 <= hksim_policy::layout::HEAP_BYTES, "a thread state fits its slot");

impl ThreadState {
    /// Writes the state of a thread with an empty heap, without a copy on the stack; returns the heap.
    ///
    /// # Safety
    /// `at` is valid for a state and only this thread uses it.
    pub(super) unsafe fn store_empty<'a>(mem: &ProcessMemory, at: NonNull<ThreadState>) -> &'a mut Heap {
        // SAFETY: by the caller's promise; a state has no drop.
        let state = unsafe {
            at.copy_from_nonoverlapping(NonNull::from(&EMPTY), 1);
            &mut *at.as_ptr()
        };
        (state.arena, state.arena_bytes) = (mem.arena().as_ptr() as usize, mem.arena_bytes());
        &mut state.heap
    }

    /// The block at an address from [`ProcessMemory::address`](crate::memory::MmapMemory::address); `None` outside the
    /// arena.
    #[inline(always)]
    pub(super) fn block_at(&self, geometry: &impl Geometry, address: *mut u8) -> Option<Block<NonNull<u8>>> {
        let from_arena = (address as usize).wrapping_sub(self.arena);
        if from_arena >= self.arena_bytes {
            return None;
        }
        // The arena starts at a multiple of the SuperSlab size.
        let offset = from_arena & ((1 << geometry.superslab_shift()) - 1);
        // SAFETY: the SuperSlab's start is in the arena, which does not start at 0.
        let superslab = unsafe { NonNull::new_unchecked(address.sub(offset)) };
        Some(Block { superslab, offset: offset as u32 })
    }
}

//! Heap slots: opening and closing thread heaps in the reservation, and finding them in the child of a fork.
//!
//! A slot is taken while its bit in the pool is set. Its *mark* says whether its storage contains a complete heap. The
//! mark becomes `OPEN` after the heap was written, and 0 before the heap is closed, even if the child of a fork closes
//! it. So if a fork interrupts the opening of a heap, the child does not mistake the bytes of an earlier heap for it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, Geometry, Memory, ThreadHeap};

use crate::memory::MmapMemory;
use crate::os::Os;

/// The mark of a slot whose heap is complete.
const OPEN: u32 = 1;
/// The mark of a slot whose heap a fork made unusable. Children of later forks skip it.
const LOST: u32 = 2;

/// A memory backend with storage and a mark for each heap slot.
pub trait SlotMemory: Memory {
    /// Start of a slot's storage.
    fn heap_storage(&self, heap: u32) -> NonNull<u8>;
    /// A slot's mark, which the policy never uses. Zero when a heap is opened.
    fn heap_mark(&self, heap: u32) -> &AtomicU32;
    /// Resets the pool's lock after a fork. Returns whether a thread of the parent held it.
    ///
    /// # Safety
    /// Called in the child of a fork, while it has one thread, which does not hold the lock.
    unsafe fn renew_lock(&self) -> bool;
}

impl<O: Os> SlotMemory for MmapMemory<O> {
    fn heap_storage(&self, heap: u32) -> NonNull<u8> {
        MmapMemory::heap_storage(self, heap)
    }

    fn heap_mark(&self, heap: u32) -> &AtomicU32 {
        MmapMemory::heap_mark(self, heap)
    }

    unsafe fn renew_lock(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { MmapMemory::renew_lock(self) }
    }
}

/// Opens a heap in the lowest free slot; `store_empty` writes an empty heap to the slot's storage. Returns the slot, or
/// `None` if all slots are taken.
pub fn open<'a, M: SlotMemory + 'a, G: Geometry>(
    allocator: &Allocator<M, G>,
    store_empty: impl FnOnce(NonNull<u8>) -> &'a mut ThreadHeap<M>,
) -> Option<u32> {
    let id = allocator.open_heap_at(|id| store_empty(allocator.mem.heap_storage(id)))?.id();
    allocator.mem.heap_mark(id).store(OPEN, Ordering::Release);
    Some(id)
}

/// Closes a heap in its slot's storage; frees the slot.
pub fn close<M: SlotMemory, G: Geometry>(allocator: &Allocator<M, G>, heap: &mut ThreadHeap<M>) {
    allocator.mem.heap_mark(heap.id()).store(0, Ordering::Release);
    allocator.close_heap_at(heap);
}

/// Makes an allocator usable in the child of a fork: resets the pool's lock, closes the heaps of threads that do not
/// exist in the child, and repairs the `kept` heaps. `heap_at` returns the address of a slot's heap. Returns the number
/// of newly lost heaps: those that were on a slow path during the fork.
///
/// # Safety
/// Called once in the child of a fork, while it has only one thread, and this thread is in no call of the allocator.
/// The `kept` heaps belong to this thread, and `heap_at` returns where [`open`] stored each heap.
pub unsafe fn inherit<M: SlotMemory, G: Geometry>(
    allocator: &Allocator<M, G>,
    heap_at: impl Fn(u32) -> NonNull<ThreadHeap<M>>,
    kept: [Option<NonNull<ThreadHeap<M>>>; 2],
) -> u32 {
    // SAFETY: the caller's promise.
    if unsafe { allocator.mem.renew_lock() } {
        allocator.discard_pool_after_fork();
    }
    let mut lost = 0;
    for id in (0..allocator.mem.heaps()).filter(|&id| allocator.is_open(id)) {
        let (mut at, mark) = (heap_at(id), allocator.mem.heap_mark(id));
        let before = mark.load(Ordering::Acquire);
        if before == LOST || kept.contains(&Some(at)) {
            continue;
        }
        // SAFETY: the mark says that the heap is complete, and its thread does not exist here.
        let orphan = if before == OPEN { Some(unsafe { at.as_mut() }) } else { None };
        match orphan.filter(|heap| heap.is_consistent()) {
            Some(heap) => {
                mark.store(0, Ordering::Release);
                allocator.close_dead_heap(heap);
            }
            None => {
                mark.store(LOST, Ordering::Release);
                lost += 1;
            }
        }
    }
    for mut heap in kept.into_iter().flatten() {
        // SAFETY: the caller's promise.
        allocator.recover_heap(unsafe { heap.as_mut() });
    }
    lost
}

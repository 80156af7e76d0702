//! Heap slots: how a thread heap is opened and closed in the reservation, and how the child of a fork finds all of them.
//!
//! A slot is taken while its bit in the pool is set. Its *mark* says more: whether the heap in its storage can be trusted.
//! The mark is `OPEN` from after the heap was written until before it is closed, whoever closes it. Between two heaps it
//! is 0, so that a child of a later fork never takes the bytes of an earlier heap for the heap that is being opened.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::{Allocator, Geometry, Memory, ThreadHeap};

use crate::memory::MmapMemory;
use crate::os::Os;

/// The mark of a slot whose heap is complete.
const OPEN: u32 = 1;
/// The mark of a slot that a fork made unusable: no later child looks at it again.
const LOST: u32 = 2;

/// Memory with a map per heap slot.
pub trait SlotMemory: Memory {
    /// Start of a slot's map.
    fn heap_storage(&self, heap: u32) -> NonNull<u8>;
    /// A word of a slot's map that the policy never uses; zero when a heap is opened.
    fn heap_mark(&self, heap: u32) -> &AtomicU32;
    /// Frees the pool's lock after a fork. Returns whether a thread that is gone held it.
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

/// Opens a heap in the lowest free slot; `store` writes it to the slot's storage. Returns the slot, or `None` if all are taken.
pub fn open<M: SlotMemory, G: Geometry>(
    allocator: &Allocator<M, G>,
    store: impl FnOnce(NonNull<u8>, ThreadHeap<M>),
) -> Option<u32> {
    let heap = allocator.open_heap()?;
    let id = heap.id();
    store(allocator.mem.heap_storage(id), heap);
    allocator.mem.heap_mark(id).store(OPEN, Ordering::Release);
    Some(id)
}

/// Closes a heap that was read from its slot's storage, and frees the slot.
pub fn close<M: SlotMemory, G: Geometry>(allocator: &Allocator<M, G>, heap: ThreadHeap<M>) {
    allocator.mem.heap_mark(heap.id()).store(0, Ordering::Release);
    allocator.close_heap(heap);
}

/// Makes an allocator usable in the child of a fork: frees the pool's lock, closes the heaps of threads that the child does
/// not have, and brings the `kept` ones up to date. `heap_at` says where the heap of a slot lies. Returns how many heaps are
/// newly lost, since the fork met them on a slow path.
///
/// # Safety
/// Called once in the child of a fork, while it has one thread, which is in no call of the allocator. The `kept` heaps are
/// that thread's, and `heap_at` names what [`open`] stored.
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
        let (at, mark) = (heap_at(id), allocator.mem.heap_mark(id));
        let before = mark.load(Ordering::Acquire);
        if before == LOST || kept.contains(&Some(at)) {
            continue;
        }
        let orphan = (before == OPEN).then(|| {
            // SAFETY: complete, as the mark says; its thread is not here, and a heap has nothing to drop.
            unsafe { at.read() }
        });
        match orphan.filter(ThreadHeap::is_consistent) {
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

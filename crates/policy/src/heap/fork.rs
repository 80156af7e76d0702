//! Recovery in the child of a fork, which has one thread but the heaps of all threads.
//!
//! The child sees each other thread's memory as of one point of that thread's program order: the kernel write-protects
//! page after page, and a thread that writes to a protected page waits until the fork is done. At every point of a fast
//! path the heap is consistent; at most the block that was being allocated or freed is lost. While a slow path runs,
//! the heap may be inconsistent, so slow paths set a flag ([`SlowPathFlag`]). The child never uses a heap whose flag is
//! set. That leaks memory but is safe: frees into such a heap are remote frees.

use core::sync::atomic::{AtomicBool, Ordering, fence};

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::metadata::meta::Use;

/// Set while a slow path changes the heap.
pub(crate) struct SlowPathFlag(AtomicBool);

impl SlowPathFlag {
    pub(crate) const fn new() -> SlowPathFlag {
        SlowPathFlag(AtomicBool::new(false))
    }
}

impl<M: Memory> ThreadHeap<M> {
    /// Whether no slow path was changing the heap. Called in the child of a fork, for the heaps of threads that do not
    /// exist in the child.
    pub fn is_consistent(&self) -> bool {
        !self.slow_path.0.load(Ordering::Acquire)
    }
}

/// Runs a slow path with the heap's flag set. Costs two stores; on x86 the fence only restricts the compiler.
#[inline(always)]
pub(crate) fn on_slow_path<M: Memory, R>(heap: &mut ThreadHeap<M>, work: impl FnOnce(&mut ThreadHeap<M>) -> R) -> R {
    let before = heap.slow_path.0.load(Ordering::Relaxed);
    heap.slow_path.0.store(true, Ordering::Relaxed);
    fence(Ordering::Release);
    let result = work(heap);
    heap.slow_path.0.store(before, Ordering::Release);
    result
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// For the child of a fork during which another thread held the pool's lock, so that the pool's lists may be half
    /// updated. Marks all free and cached SuperSlabs lost; only ordinals that were never used stay usable. Live blocks
    /// are not affected.
    pub fn discard_pool_after_fork(&self) {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        for list in [&pool.idle, &pool.abandoned, &pool.huge_idle] {
            list.head.set(0);
            list.tail.set(0);
            list.count.set(0);
        }
        pool.huge_idle_bytes.set(0);
        for ordinal in 0..pool.high_water.get() {
            let entry = self.mem.entry(ordinal);
            match entry.usage() {
                Use::Free | Use::Idle | Use::Warm | Use::HugeIdle => {
                    entry.set_usage(Use::Lost);
                    pool.lost_superslabs.set(pool.lost_superslabs.get() + 1);
                }
                // The SuperSlab is no longer in a list, so it is never adopted.
                Use::Abandoned => entry.set_usage(Use::Slabs),
                Use::Slabs | Use::Huge | Use::HugeTail | Use::Lost => {}
            }
        }
        pool.free_hint.set(pool.high_water.get());
        drop(guard);
    }

    /// For the child of a fork: repairs the heap of the thread that forked. Messages that other threads were sending
    /// never arrive, so slabs marked `QUEUED` are handled as if their messages had arrived.
    pub fn recover_heap(&self, heap: &mut ThreadHeap<M>) {
        on_slow_path(heap, |heap| {
            self.receive_messages(heap);
            while let Some(span) = self.find_queued(heap) {
                self.handle_message(heap, span);
            }
        });
    }

    /// For the child of a fork: closes the heap of a thread that does not exist in the child, as
    /// [`close_heap`](Self::close_heap) does. The heap must be [consistent](ThreadHeap::is_consistent).
    pub fn close_dead_heap(&self, heap: &mut ThreadHeap<M>) {
        self.empty_front_cache(heap);
        self.for_each_own_span(heap, |span| self.mark_listed(span));
        self.recover_heap(heap);
        self.abandon_heap(heap);
    }

    fn find_queued(&self, heap: &ThreadHeap<M>) -> Option<Span<M>> {
        let mut found = None;
        self.for_each_own_span(heap, |span| {
            if self.is_queued(span) {
                found = Some(span);
            }
        });
        found
    }
}

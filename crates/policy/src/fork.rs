//! After a fork: the child has one thread, and heaps of many.
//!
//! What the other threads' memory looked like at the fork is a moment of their programs, in program order: the kernel write-
//! protects page after page, and a thread's first write to a protected one waits for the end. Fast paths leave a heap in
//! order at every moment of theirs, but for a block that was on its way to or from the program: that one is lost. Slow
//! paths do not, so a heap notes that it is on one ([`Stage`]); such a heap is left alone for ever, which loses memory and
//! harms nobody, since frees into it are remote ones.

use core::sync::atomic::{AtomicBool, Ordering, fence};

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::meta::Use;

/// Whether a heap is being changed by a slow path.
pub(crate) struct Stage(AtomicBool);

impl Stage {
    pub(crate) const fn settled() -> Stage {
        Stage(AtomicBool::new(false))
    }
}

impl<M: Memory> ThreadHeap<M> {
    /// Whether its thread is on no slow path. Asked in the child of a fork, about threads that are not there.
    pub fn is_settled(&self) -> bool {
        !self.stage.0.load(Ordering::Acquire)
    }
}

/// Does what changes a heap in many steps. Costs two stores; the fence is the compiler's alone where stores keep their order.
#[inline(always)]
pub(crate) fn in_steps<M: Memory, R>(heap: &mut ThreadHeap<M>, work: impl FnOnce(&mut ThreadHeap<M>) -> R) -> R {
    let before = heap.stage.0.load(Ordering::Relaxed);
    heap.stage.0.store(true, Ordering::Relaxed);
    fence(Ordering::Release);
    let result = work(heap);
    heap.stage.0.store(before, Ordering::Release);
    result
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// In the child of a fork that met another thread with the pool's lock: what that one was changing may be half done. So
    /// nothing that the pool keeps or has free is used again, but for ordinals that never were; live blocks are safe.
    pub fn salvage_pool(&self) {
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
                // In no list any more, so nobody adopts it.
                Use::Abandoned => entry.set_usage(Use::Slabs),
                Use::Slabs | Use::Huge | Use::HugeTail | Use::Lost => {}
            }
        }
        pool.free_hint.set(pool.high_water.get());
        drop(guard);
    }

    /// In the child of a fork, for the heap of the thread that forked: letters of threads that are not there never come.
    pub fn recover_heap(&self, heap: &mut ThreadHeap<M>) {
        in_steps(heap, |heap| {
            self.read_mail(heap);
            while let Some(span) = self.find_posted(heap) {
                self.take_letter(heap, span);
            }
        });
    }

    /// In the child of a fork, for the heap of a thread that is not there: as [`close_heap`](Self::close_heap).
    /// The heap must be [settled](ThreadHeap::is_settled).
    pub fn close_orphan(&self, mut heap: ThreadHeap<M>) {
        self.for_each_own_span(&heap, |span| self.note_listed(span));
        self.recover_heap(&mut heap);
        self.give_up(heap);
    }

    fn find_posted(&self, heap: &ThreadHeap<M>) -> Option<Span<M>> {
        let mut found = None;
        self.for_each_own_span(heap, |span| {
            if self.is_posted(span) {
                found = Some(span);
            }
        });
        found
    }
}

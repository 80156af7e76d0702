//! The common events of a batch: the same effects as [`Driver::step`], with less work per event.
//!
//! - A thread's heap is looked up once for a run of its events.
//! - The clock is set only before a slow path of the allocator. Nothing else reads it.

use hksim_policy::{Allocator, Block, FastFree, Geometry, Path, ThreadHeap, World};
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, ThreadId};
use hksim_trace::hkt::{BatchReader, CommonAlloc, CommonCall};

use super::{DriveError, Driver};
use crate::heaps::Heaps;
use crate::objects::Objects;

impl<W: World, G: Geometry> Driver<Allocator<W, G>> {
    /// Performs events of a batch: those before the first uncommon one, and before event `end` of the batch. Calls
    /// `done` after each event. After the last, the memory's clock is at its time.
    ///
    /// # Errors
    /// No heap can be opened for a new thread. The failed event is the last one that `reader` has passed.
    pub fn step_common(
        &mut self,
        reader: &mut BatchReader<'_>,
        end: usize,
        mut done: impl FnMut(&W),
    ) -> Result<(), DriveError> {
        loop {
            let before = reader.passed();
            match self.objects.is_large() {
                true => self.step_run::<true>(reader, end, &mut done)?,
                false => self.step_run::<false>(reader, end, &mut done)?,
            }
            if reader.passed() == before {
                break;
            }
        }
        if reader.passed() > 0 {
            self.allocator.mem.set_now(reader.time_ns());
        }
        Ok(())
    }

    /// As [`Driver::step_common`], for the events of one thread. Not inlined, so that its variables are in registers.
    #[inline(never)]
    fn step_run<const LOOKS_AHEAD: bool>(
        &mut self,
        reader: &mut BatchReader<'_>,
        end: usize,
        done: &mut impl FnMut(&W),
    ) -> Result<(), DriveError> {
        let mut run = reader.common(end);
        let thread = run.thread();
        if !self.has_heap(thread) {
            self.step_one(reader, end, |allocator| done(&allocator.mem))?;
            return Ok(());
        }
        let Driver { allocator, heaps, objects, failed } = self;
        let Some(Some(heap)) = heaps.get_mut(thread.0 as usize) else { return Ok(()) };
        let initial_touches = CommonAlloc::table(|kind| objects.touch.initial_touch(kind.initial_touch()));
        while let Some(call) = run.next() {
            if LOOKS_AHEAD {
                objects.look_ahead(&allocator.mem, &run);
            }
            match call {
                CommonCall::Alloc { object, size, kind } => {
                    let initial_touch = initial_touches[kind.index()];
                    match heap.ready(&allocator.geometry, size).filter(|_| kind.call() == AllocCall::Malloc) {
                        Some(ready) => {
                            let class = ready.class();
                            allocator.mem.path(Path::Malloc, 1);
                            let block = allocator.take(heap, ready);
                            if LOOKS_AHEAD {
                                allocator.expect_allocation(heap, class);
                            }
                            objects.place(&allocator.mem, object, block, size, initial_touch);
                        }
                        None => {
                            allocator.mem.set_now(reader.time_ns_after(run.passed()));
                            let request = (kind.call(), size);
                            let placed = place_slowly(allocator, heap, objects, object, request, initial_touch);
                            *failed += u64::from(!placed);
                        }
                    }
                }
                CommonCall::Free { object } => {
                    if let Some(block) = objects.remove(&allocator.mem, object) {
                        let outcome = allocator.free_fast(heap, block);
                        if outcome != FastFree::Done {
                            allocator.mem.path(Path::FreeUnfinished, 1);
                            allocator.mem.set_now(reader.time_ns_after(run.passed()));
                            allocator.finish_free(heap, block, outcome);
                        }
                    }
                }
            }
            done(&allocator.mem);
        }
        reader.pass(run);
        Ok(())
    }

    fn has_heap(&self, thread: ThreadId) -> bool {
        self.heaps.get(thread.0 as usize).is_some_and(Option::is_some)
    }
}

impl<A: Heaps> Driver<A> {
    /// Performs the events that [`Driver::step_common`] performs, one by one with [`Driver::step`]: for any allocator.
    ///
    /// # Errors
    /// As of [`Driver::step_common`].
    pub fn step_each(
        &mut self,
        reader: &mut BatchReader<'_>,
        end: usize,
        mut done: impl FnMut(&A),
    ) -> Result<(), DriveError> {
        while self.step_one(reader, end, &mut done)? {}
        Ok(())
    }

    /// Performs the next event if it is a common one before event `end`; returns whether it is. In a run of the SuperSlab
    /// allocator, only an allocation, and a free of a block, open the thread's heap.
    fn step_one(
        &mut self,
        reader: &mut BatchReader<'_>,
        end: usize,
        mut done: impl FnMut(&A),
    ) -> Result<bool, DriveError> {
        let mut run = reader.common(end);
        let (thread, call) = (run.thread(), run.next());
        reader.pass(run);
        let Some(call) = call else { return Ok(false) };
        self.step(&Event::new(reader.time_ns(), thread, call.op()))?;
        done(&self.allocator);
        Ok(true)
    }
}

/// Allocates and places an object without the fast path. False if the allocation failed. Not inlined: its result would be
/// in memory on the fast path, too.
#[inline(never)]
fn place_slowly<W: World, G: Geometry>(
    allocator: &Allocator<W, G>,
    heap: &mut ThreadHeap<W>,
    objects: &mut Objects<Block<W::SuperSlab>>,
    object: ObjectId,
    (call, bytes): (AllocCall, u64),
    initial_touch: InitialTouch,
) -> bool {
    match Heaps::allocate(allocator, heap, call, bytes, 0) {
        Some(block) => {
            objects.place(&allocator.mem, object, block, bytes, initial_touch);
            true
        }
        None => {
            objects.without_block(object);
            false
        }
    }
}

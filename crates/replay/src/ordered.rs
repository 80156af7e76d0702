//! What ordered runs on every allocator have in common.

use std::mem::ManuallyDrop;

use hksim_engine::{Driver, ForkStep, Heaps, Tables};
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Event;
use hksim_trace::source::EventSource;

use crate::calls::Counted;
use crate::coarse;
use crate::error::ChildError;
use crate::extents::Extent;
use crate::fork::{Children, keep_apart};
use crate::measured::open_traps;
use crate::null;
use crate::observer::Observer;
use crate::prefault::{MeasuredHeap, prefault};
use crate::protocol::{Report, Timing};
use crate::replayable::Replayable;
use crate::tlb::TlbWatch;
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, drive};
use hksim_linux_probe::resident::make_resident;

/// Tables for a trace, present before the window opens.
pub(crate) fn tables<A: Heaps>(trace: &PreparedTrace) -> Tables<A> {
    let summary = trace.reader.summary();
    let tables = Tables::new(summary.threads, summary.objects_peak);
    tables.extents().into_iter().for_each(|(start, bytes)| make_resident(start, bytes));
    tables
}

/// Performs an event; `number` is its index in the trace.
#[inline]
pub(crate) fn step<A: Heaps>(heap: &mut Driver<A>, event: &Event, number: u64) -> Result<(), ChildError> {
    heap.step(event).map_err(|why| ChildError::Drive { event: number, why })
}

/// The control run: a measured run without a heap.
pub(crate) fn control(extent: Extent, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
    let (traps, _) = open_traps();
    let Ok(observer) = Observer::new(extent, traps) else {
        return coarse::control(trace, MeasuredHeap::Reservation);
    };
    null::control(trace, observer, MeasuredHeap::Reservation)
}

/// A heap without an observer.
struct Timed<A: Heaps> {
    /// Never dropped, as in a measured run.
    heap: ManuallyDrop<Driver<A>>,
    children: Children,
    tlb: TlbWatch,
}

impl<A: Replayable<Counted>> WindowDriver for Timed<A> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn batch_begins(&mut self) {
        self.tlb.begin();
    }

    fn batch_done(&mut self) {
        self.tlb.pause();
    }

    /// The kernel refuses the same lock in the measured run, which reports it.
    fn lock(&mut self, lock: MemoryLock) {
        let _ = self.heap.allocator().lock_as(lock);
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }

    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        match step {
            ForkStep::Exit(number) => self.children.exit(number),
            ForkStep::Fork(number) => {
                let heap = self.heap.allocator().addresses();
                keep_apart(heap.start, heap.end - heap.start)
                    .map_err(ChildError::system("exclude memory from a child"))?;
                self.children.fork(number);
            }
        }
        Ok(())
    }
}

/// The timed run on the allocator that `open` creates.
pub(crate) fn timed<A: Replayable<Counted>>(
    trace: &mut PreparedTrace,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let (children, tlb) = (Children::none(), TlbWatch::open());
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    let mut timed = Timed { heap: ManuallyDrop::new(open()?), children, tlb };
    let driven = drive(trace, &mut timed)?;
    let usage = Usage::now().since(&before);
    Ok(Report::Timed(Timing::new(trace.operations, driven.time, usage, timed.tlb.finish())))
}

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
use crate::probe::{Meter, ModeProbe};
use crate::protocol::{Report, Timing};
use crate::replayable::{Replayable, SuperSlabs};
use crate::tlb::TlbWatch;
use crate::window::{Driven, PreparedTrace, WindowDriver, drive};
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
        return coarse::control::<SuperSlabs<Counted>>(trace, MeasuredHeap::Reservation);
    };
    null::control::<SuperSlabs<Counted>, _>(trace, observer, MeasuredHeap::Reservation)
}

/// A heap without an observer.
pub(crate) struct Unobserved<A: Heaps, M> {
    /// Never dropped, as in a measured run.
    pub(crate) heap: ManuallyDrop<Driver<A>>,
    pub(crate) children: Children,
    pub(crate) meter: M,
}

impl<A: Replayable<Counted>, M: Meter> WindowDriver for Unobserved<A, M> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn piece_begins(&mut self) {
        self.meter.resume();
    }

    fn piece_done(&mut self, _events: usize, _cpu_ns: u64) {
        self.meter.pause();
    }

    /// The kernel refuses the same lock in the measured run, which reports it.
    fn lock(&mut self, lock: MemoryLock) {
        let _ = self.heap.allocator().lock_as(lock);
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }

    /// Waiting for a child's exit, and excluding memory from a child, is not work of the kernel on pages.
    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        match step {
            ForkStep::Exit(number) => self.children.exit(number),
            ForkStep::Fork(number) => {
                let heap = self.heap.allocator().addresses();
                keep_apart(heap.start, heap.end - heap.start)
                    .map_err(ChildError::system("exclude memory from a child"))?;
                self.meter.resume();
                self.children.fork(number);
                self.meter.pause();
            }
        }
        Ok(())
    }
}

/// A run without an observer on the allocator that `open` creates.
fn unobserved<A: Replayable<Counted>, M: Meter>(
    trace: &mut PreparedTrace,
    mut meter: M,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<(Driven, M), ChildError> {
    let children = Children::none();
    prefault(MeasuredHeap::Reservation);
    meter.start();
    let mut unobserved = Unobserved { heap: ManuallyDrop::new(open()?), children, meter };
    let driven = drive(trace, &mut unobserved)?;
    Ok((driven, unobserved.meter))
}

/// The timed run on the allocator that `open` creates.
pub(crate) fn timed<A: Replayable<Counted>>(
    trace: &mut PreparedTrace,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let (driven, tlb) = unobserved(trace, TlbWatch::open(), open)?;
    Ok(Report::Timed(Timing {
        sample: driven.sample(trace.operations),
        job_ns: 0,
        dtlb: tlb.finish(),
        moments: Some(trace.moments.clone()),
    }))
}

/// The sampled run on the allocator that `open` creates.
pub(crate) fn sampled<A: Replayable<Counted>>(
    trace: &mut PreparedTrace,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let (_, probe) = unobserved(trace, ModeProbe::open()?, open)?;
    Ok(Report::System(probe.finish()))
}

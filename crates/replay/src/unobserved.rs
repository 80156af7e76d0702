//! Ordered runs without observers, on an allocator that is not replayed page by page: the process's `malloc`, or none.

use hksim_engine::{Driver, Heaps, TouchRule};
use hksim_trace::event::Event;

use crate::error::ChildError;
use crate::malloc_heap::Malloc;
use crate::ordered::{step, tables};
use crate::phases::{PhaseProbe, PhasedMalloc};
use crate::pieces::InPieces;
use crate::prefault::{MeasuredHeap, prefault};
use crate::probe::{Meter, ModeProbe};
use crate::protocol::{Report, Timing};
use crate::threaded::NoAllocator;
use crate::tlb::TlbWatch;
use crate::window::{Driven, PreparedTrace, WindowDriver, drive};

/// A run without observers.
pub(crate) struct UnobservedRun<'a> {
    /// The heap that is measured.
    pub(crate) heap: MeasuredHeap<'a>,
    /// The touch rule.
    pub(crate) touch: TouchRule,
}

/// Drives an allocator, and measures only the time.
struct Metered<A: Heaps, M> {
    heap: Driver<A>,
    meter: M,
}

impl<A: Heaps, M: Meter> WindowDriver for Metered<A, M> {
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

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }
}

impl UnobservedRun<'_> {
    /// The timed run of `malloc`.
    pub(crate) fn timed(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        self.times(Malloc, trace)
    }

    /// The timed run without an allocator. Nothing is touched, because there are no blocks.
    pub(crate) fn harness(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        self.times(NoAllocator, trace)
    }

    /// The sampled run of `malloc`.
    pub(crate) fn sampled(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let (_, metered) = self.run(Malloc, ModeProbe::open()?, trace)?;
        Ok(Report::System(metered.meter.finish()))
    }

    /// The run of `malloc` whose phases are sampled.
    pub(crate) fn apart(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let (_, Metered { heap, meter }) = self.run(PhasedMalloc::default(), PhaseProbe::open()?, trace)?;
        Ok(Report::Apart(meter.finish(heap.allocator(), trace.operations)))
    }

    /// The run of `malloc` in pieces.
    pub(crate) fn pieces(&self, alone_from: f32, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        self.in_pieces(Malloc, alone_from, trace)
    }

    /// The run without an allocator in pieces.
    pub(crate) fn harness_pieces(&self, alone_from: f32, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        self.in_pieces(NoAllocator, alone_from, trace)
    }

    fn in_pieces<A: Heaps>(
        &self,
        allocator: A,
        alone_from: f32,
        trace: &mut PreparedTrace,
    ) -> Result<Report, ChildError> {
        let heap = Driver::with_tables(allocator, tables(trace), self.touch);
        let mut in_pieces = InPieces::new(heap, alone_from, trace);
        prefault(self.heap);
        let driven = drive(trace, &mut in_pieces)?;
        Ok(Report::Pieces(driven.sample(trace.operations), in_pieces.finish()))
    }

    fn times<A: Heaps>(&self, allocator: A, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let (driven, metered) = self.run(allocator, TlbWatch::open(), trace)?;
        Ok(Report::Timed(Timing {
            sample: driven.sample(trace.operations),
            job_ns: 0,
            dtlb: metered.meter.finish(),
            moments: Some(trace.moments.clone()),
        }))
    }

    fn run<A: Heaps, M: Meter>(
        &self,
        allocator: A,
        meter: M,
        trace: &mut PreparedTrace,
    ) -> Result<(Driven, Metered<A, M>), ChildError> {
        let mut metered = Metered { heap: Driver::with_tables(allocator, tables(trace), self.touch), meter };
        prefault(self.heap);
        metered.meter.start();
        let driven = drive(trace, &mut metered)?;
        Ok((driven, metered))
    }
}

//! Ordered runs on the process's own `malloc`.

use std::path::Path;

use hksim_engine::{Driver, TouchRule};
use hksim_trace::event::Event;

use crate::coarse;
use crate::error::ChildError;
use crate::malloc_heap::Malloc;
use crate::ordered::{step, tables};
use crate::prefault::{MeasuredHeap, prefault};
use crate::process::ProcessMemory;
use crate::protocol::{MeasuredReport, Report, Timing};
use crate::result::{Mark, Replayed, Skipped};
use crate::tlb::TlbWatch;
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver, drive};
use hksim_linux_probe::traps::TrapCounter;

/// One run of the process's `malloc`.
pub(crate) struct MallocRun<'a> {
    /// The preloaded library.
    pub(crate) library: Option<&'a Path>,
    /// The touch rule.
    pub(crate) touch: TouchRule,
}

/// Drives `malloc`.
struct Driven<W> {
    heap: Driver<Malloc>,
    marks: Vec<Mark>,
    watch: Option<W>,
    tlb: TlbWatch,
}

impl<W: WindowObserver> WindowDriver for Driven<W> {
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

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        let mark = self.watch.as_mut().map(|watch| watch.mark(events));
        self.marks.extend(mark);
        Ok(())
    }
}

/// A counter of the process's traps, or the reason why there is none.
pub(crate) fn count_traps() -> (Option<TrapCounter>, Vec<Skipped>) {
    match TrapCounter::of_process() {
        Ok(traps) => (Some(traps), Vec::new()),
        Err(why) => {
            let reason = format!("{why} (kernel.perf_event_paranoid must be 2 or less)");
            (None, vec![Skipped::new("traps", reason)])
        }
    }
}

/// An observer of the process, and the figures that it cannot measure.
pub(crate) fn watch_process() -> Result<(ProcessMemory, Vec<Skipped>), ChildError> {
    let (traps, skipped) = count_traps();
    let memory = ProcessMemory::open(traps).map_err(ChildError::system("read /proc/self"))?;
    Ok((memory, skipped))
}

impl MallocRun<'_> {
    /// The control run.
    pub(crate) fn control(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        coarse::control(trace, MeasuredHeap::Process { library: self.library })
    }

    fn driver<W>(&self, trace: &PreparedTrace, watch: Option<W>, tlb: TlbWatch) -> Driven<W> {
        let marks = Vec::with_capacity(trace.stops.len());
        Driven { heap: Driver::with_tables(Malloc, tables(trace), self.touch), marks, watch, tlb }
    }

    /// The measured run.
    pub(crate) fn measured(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let (memory, mut skipped) = watch_process()?;
        let mut driver = self.driver(trace, Some(memory), TlbWatch::off());
        ProcessMemory::reset_peak();
        prefault(MeasuredHeap::Process { library: self.library });
        let before = Usage::now();
        driver.watch.iter_mut().for_each(WindowObserver::begin);
        let driven = drive(trace, &mut driver)?;
        let faults = Usage::now().since(&before).faults;
        let traps = driver.watch.as_mut().and_then(WindowObserver::end);
        skipped.push(Skipped::new("installs", "the mappings of other allocators are not observed page by page"));
        skipped.push(Skipped::new("os_calls", "the system calls of other allocators are not counted"));
        skipped.extend(trace.left_out_of_malloc());
        let mut replayed = Replayed {
            faults: Some(faults),
            traps,
            events: driven.events,
            requests_failed: driver.heap.failed(),
            skipped,
            ..Replayed::default()
        };
        if let Some(memory) = &driver.watch {
            replayed.note_process(memory);
        }
        Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: driver.marks })))
    }

    /// The timed run.
    pub(crate) fn timed(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let mut driver = self.driver::<ProcessMemory>(trace, None, TlbWatch::open());
        prefault(MeasuredHeap::Process { library: self.library });
        let before = Usage::now();
        let driven = drive(trace, &mut driver)?;
        let spent = Usage::now().since(&before);
        Ok(Report::Timed(Timing::new(trace.operations, driven.time, spent, driver.tlb.finish())))
    }
}

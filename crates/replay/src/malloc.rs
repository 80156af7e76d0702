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
use crate::protocol::{MeasuredReport, Report};
use crate::result::{Mark, Replayed, Skipped};
use crate::unobserved::UnobservedRun;
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

/// Drives `malloc`, and observes the process.
struct Observed {
    heap: Driver<Malloc>,
    marks: Vec<Mark>,
    memory: ProcessMemory,
}

impl WindowDriver for Observed {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        self.marks.push(self.memory.mark(events));
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
        coarse::control::<Malloc>(trace, self.heap())
    }

    fn heap(&self) -> MeasuredHeap<'_> {
        MeasuredHeap::Process { library: self.library }
    }

    /// A run without observers.
    pub(crate) fn unobserved(&self) -> UnobservedRun<'_> {
        UnobservedRun { heap: self.heap(), touch: self.touch }
    }

    /// The measured run.
    pub(crate) fn measured(&self, trace: &mut PreparedTrace) -> Result<Report, ChildError> {
        let (memory, mut skipped) = watch_process()?;
        let heap = Driver::with_tables(Malloc, tables(trace), self.touch);
        let mut driver = Observed { heap, marks: Vec::with_capacity(trace.stops.len()), memory };
        ProcessMemory::reset_peak();
        prefault(self.heap());
        let before = Usage::now();
        driver.memory.begin();
        let driven = drive(trace, &mut driver)?;
        let faults = Usage::now().since(&before).faults;
        let traps = driver.memory.end();
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
        replayed.note_process(&driver.memory);
        let start = driver.memory.start();
        Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: driver.marks, start })))
    }
}

//! Threaded runs: a trace on real threads. They report counters and totals, but no page sets.

mod allocators;
mod gate;
mod queue;
mod threads;
mod workers;

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use hksim_engine::TouchRule;
use hksim_native::MmapMemory;
use hksim_policy::layout::HEAPS_MAX;
use hksim_policy::{Allocator, PreparedPolicy};
use hksim_timing::Sample;
use hksim_timing::clock::{process_cpu_ns, thread_cpu_ns};
use hksim_trace::source::EventSource;

use crate::calls::Counted;
use crate::error::ChildError;
use crate::extents::Extent;
use crate::malloc::{count_traps, watch_process};
use crate::malloc_heap::Malloc;
use crate::memory_policy::not_locked;
use crate::observer::Observer;
use crate::prefault::{MeasuredHeap, prefault};
use crate::process::ProcessMemory;
use crate::protocol::{ControlReport, MeasuredReport, Report, Timing};
use crate::replayable::Replayable;
use crate::result::{Control, Mark, Replayed, Skipped};
use crate::spec::Run;
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowObserver};
pub(crate) use allocators::NoAllocator;
use allocators::{NativeAllocator, SharedAllocator};
use hksim_linux_probe::resident::Resident;
use hksim_linux_probe::traps::TrapCounter;
use workers::{Done, Workers};

/// A threaded run on any allocator.
pub(crate) struct Threaded<'a> {
    /// The trace.
    pub(crate) trace: &'a mut PreparedTrace,
    /// The touch rule.
    pub(crate) touch: TouchRule,
}

/// The figures of a window.
struct WindowResult {
    done: Done,
    spent: Usage,
    sample: Sample,
    traps: Option<u64>,
    marks: Vec<Mark>,
}

/// Observes nothing: for timed runs.
struct Unwatched;

impl WindowObserver for Unwatched {
    fn begin(&mut self) {}

    fn mark(&mut self, events: u64) -> Mark {
        Mark { event: events, ..Mark::default() }
    }

    fn end(&mut self) -> Option<u64> {
        None
    }
}

/// Scans the reservation at the marks, and counts the traps of all threads.
struct Sampled {
    observer: Observer,
    traps: Option<TrapCounter>,
}

impl WindowObserver for Sampled {
    fn begin(&mut self) {
        self.observer.begin();
        self.traps.iter().for_each(TrapCounter::enable);
    }

    fn mark(&mut self, events: u64) -> Mark {
        // The same scan fills the snapshot, so any difference was caused by threads during the scan.
        Mark { inconsistent_pages: 0, ..self.observer.mark(events) }
    }

    fn end(&mut self) -> Option<u64> {
        let traps = self.traps.as_ref().map(|traps| {
            traps.disable();
            traps.count()
        });
        self.observer.end();
        traps
    }
}

impl Threaded<'_> {
    /// A run on the SuperSlab allocator.
    pub(crate) fn native(&mut self, plan: PreparedPolicy, run: Run) -> Result<Report, ChildError> {
        self.check_threads()?;
        match run {
            Run::Control => self.control(MeasuredHeap::Reservation),
            Run::Harness => self.harness(),
            Run::Pieces | Run::HarnessPieces | Run::Apart | Run::Explained(_) | Run::ExplainedStart(_) => {
                Err(ChildError::OrderedMallocOnly)
            }
            Run::Limited => Err(ChildError::OrderedLimitOnly),
            Run::Sampled | Run::System(..) => Err(ChildError::OrderedNativeOnly),
            Run::Timed => {
                let shared = OnceLock::new();
                let outcome = self.window(&shared, &mut Unwatched, MeasuredHeap::Reservation, |_| open(plan))?;
                Ok(timing(&outcome))
            }
            Run::Measured => {
                let (traps, mut skipped) = count_traps();
                let observer =
                    Observer::new(Extent::of(&plan.layout), None).map_err(ChildError::system("observe pages"))?;
                let mut sampled = Sampled { observer, traps };
                let shared = OnceLock::new();
                let outcome = self.window(&shared, &mut sampled, MeasuredHeap::Reservation, |sampled| {
                    let allocator = open(plan)?;
                    sampled.observer.locate(allocator.mem.base().as_ptr() as u64);
                    Ok(allocator)
                })?;
                let mut replayed = outcome.replayed();
                let allocator: Option<&NativeAllocator> = shared.get();
                replayed.os_calls = allocator.map(|allocator| allocator.mem.os().calls());
                replayed.os_calls_failed = allocator.map(|allocator| allocator.mem.os().failed());
                allocator.into_iter().for_each(|allocator| allocator.note_own(&mut replayed));
                // With real threads, the base address is not reported.
                replayed.base_address = None;
                replayed.note_observer(&sampled.observer);
                let later = || allocator?.refused_later();
                if let Some(why) = outcome.done.lock_refused.as_ref().map(io::Error::to_string).or_else(later) {
                    replayed.leave_out_memory(not_locked(&why));
                }
                replayed.skipped.append(&mut skipped);
                replayed
                    .skipped
                    .push(Skipped::new("rss_bytes_peak", "the maximum at any mark: threads run during the scans"));
                Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: outcome.marks, start: None })))
            }
        }
    }

    /// A run on the process's `malloc`.
    pub(crate) fn malloc(&mut self, library: Option<&Path>, run: Run) -> Result<Report, ChildError> {
        self.check_threads()?;
        let heap = MeasuredHeap::Process { library };
        match run {
            Run::Control => self.control(heap),
            Run::Harness => self.harness(),
            Run::Pieces | Run::HarnessPieces | Run::Apart | Run::Explained(_) | Run::ExplainedStart(_) => {
                Err(ChildError::OrderedMallocOnly)
            }
            Run::Limited => Err(ChildError::OrderedLimitOnly),
            Run::Sampled | Run::System(..) => Err(ChildError::OrderedNativeOnly),
            Run::Timed => {
                let outcome = self.window(&OnceLock::new(), &mut Unwatched, heap, |_| Ok(Malloc))?;
                Ok(timing(&outcome))
            }
            Run::Measured => {
                let (mut memory, mut skipped) = watch_process()?;
                skipped.extend(self.trace.left_out_of_malloc());
                ProcessMemory::reset_peak();
                let outcome = self.window(&OnceLock::new(), &mut memory, heap, |_| Ok(Malloc))?;
                let mut replayed = outcome.replayed();
                replayed.note_process(&memory);
                replayed.skipped.append(&mut skipped);
                let start = memory.start();
                Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: outcome.marks, start })))
            }
        }
    }

    fn control(&mut self, heap: MeasuredHeap<'_>) -> Result<Report, ChildError> {
        let (mut memory, _) = watch_process()?;
        let outcome = self.window(&OnceLock::new(), &mut memory, heap, |_| Ok(NoAllocator))?;
        let (control, start) = (Control::new(&outcome.spent, outcome.traps), memory.start());
        Ok(Report::Control(ControlReport { control, start }))
    }

    fn harness(&mut self) -> Result<Report, ChildError> {
        let heap = MeasuredHeap::Reservation;
        let outcome = self.window(&OnceLock::new(), &mut Unwatched, heap, |_| Ok(NoAllocator))?;
        Ok(timing(&outcome))
    }

    fn check_threads(&self) -> Result<(), ChildError> {
        let threads = self.trace.reader.summary().threads;
        if threads > HEAPS_MAX { Err(ChildError::TooManyThreads { threads, most: HEAPS_MAX }) } else { Ok(()) }
    }

    /// Opens a window with threads already waiting; `open` creates the allocator inside it.
    fn window<S: SharedAllocator, W: WindowObserver>(
        &mut self,
        shared: &OnceLock<S>,
        watch: &mut W,
        heap: MeasuredHeap<'_>,
        open: impl FnOnce(&mut W) -> Result<S, ChildError>,
    ) -> Result<WindowResult, ChildError> {
        let workers = Workers::new(self.trace, self.touch);
        let objects = self.trace.reader.summary().objects_peak as usize;
        let mut tickets = Resident::zeroed(objects).map_err(ChildError::system("allocate tables"))?;
        let mut marks = Vec::with_capacity(self.trace.stops.len());
        let calls = self.trace.operations;
        let trace = &mut *self.trace;
        workers.run(shared, || {
            prefault(heap);
            let before = Usage::now();
            watch.begin();
            let allocator = open(watch)?;
            let (start, cpu_before_ns) = (Instant::now(), workers_cpu_ns());
            // Cannot fail: `shared` is set only here.
            let _ = shared.set(allocator);
            let done = workers.dispatch(trace, &mut tickets, |events| marks.push(watch.mark(events)))?;
            let (cpu_ns, wall_ns) = (workers_cpu_ns().saturating_sub(cpu_before_ns), start.elapsed().as_nanos() as u64);
            let sample = Sample { cpu_ns, wall_ns, calls, start_end_ns: None };
            let traps = watch.end();
            Ok(WindowResult { done, spent: Usage::now().since(&before), sample, traps, marks })
        })
    }
}

impl WindowResult {
    fn replayed(&self) -> Replayed {
        let reason = "with real threads, pages are not observed call by call";
        Replayed {
            faults: Some(self.spent.faults),
            traps: self.traps,
            events: self.done.events,
            requests_failed: self.done.failed,
            skipped: vec![
                Skipped::new("installs", reason),
                Skipped::new("placement_digest", "differs from run to run"),
            ],
            ..Replayed::default()
        }
    }
}

fn timing(outcome: &WindowResult) -> Report {
    let dtlb = Err("counted in ordered replays only: the threads run before the window opens".to_string());
    Report::Timed(Timing { sample: outcome.sample, job_ns: 0, dtlb, moments: None })
}

/// Processor time of all threads but this one, which reads the trace.
fn workers_cpu_ns() -> u64 {
    process_cpu_ns().saturating_sub(thread_cpu_ns())
}

fn open(plan: PreparedPolicy) -> Result<NativeAllocator, ChildError> {
    let memory = MmapMemory::new(plan.layout, Counted::default())?;
    Ok(Allocator::new(memory, plan.geometry, plan.policy, &plan.layout))
}

//! The measured window: every event of a trace, in order, with stops at the marks.

use std::time::{Duration, Instant};

use hksim_engine::{ForkSchedule, ForkStep, MemoryPolicyRule, PointFinder};
use hksim_policy::memory::MemoryLock;
use hksim_timing::Sample;
use hksim_timing::clock::{monotonic_ns, thread_cpu_ns};
use hksim_trace::event::Event;
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};

use crate::error::ChildError;
use crate::memory_policy::apply_memory_policy;
use crate::pause::pause;
use crate::result::{Mark, Skipped, StartMemory};
use crate::spec::ReplaySpec;

/// When a replay in trace order passed points of its trace (CLOCK_MONOTONIC). Between the first and the last,
/// only the memory of the allocator changes, and not that of the replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    /// Right before the first event.
    pub began_ns: u64,
    /// At each stop: the marks of the trace, or evenly spaced points, and the end.
    pub stops: Vec<Moment>,
}

/// A point of a trace that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Events done.
    pub events: u64,
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
}

/// A trace that was read once, so that reading it again takes no page fault.
pub(crate) struct PreparedTrace {
    pub(crate) reader: WithProfiles<TraceReader>,
    /// Event counts at which the run stops to record a mark: see [`PointFinder::finish`].
    pub(crate) stops: Vec<u64>,
    /// Number of events after which the process stops itself; one of the stops.
    pause_after: Option<u64>,
    /// Whether the program's memory policies apply.
    pub(crate) memory_policy: MemoryPolicyRule,
    /// When children are forked and when they exit.
    pub(crate) forks: ForkSchedule,
    /// Allocator calls in the whole trace.
    pub(crate) operations: u64,
    /// Calls of `mlockall` and `munlockall` to replay.
    locks: u64,
    /// When the window was opened and its stops were passed.
    pub(crate) moments: Moments,
    /// For each thread, the number of events up to and including its last event.
    pub(crate) last_events: Vec<u64>,
}

impl PreparedTrace {
    /// Reads the whole trace, and rewinds it.
    pub(crate) fn new(
        mut reader: WithProfiles<TraceReader>,
        pause_after: Option<u64>,
        spec: &ReplaySpec,
    ) -> Result<PreparedTrace, ChildError> {
        let mut marks = PointFinder::default();
        let (mut operations, mut events, mut locks) = (0, 0, 0);
        let mut last_events = vec![0; reader.summary().threads as usize];
        while let Some(batch) = reader.next_batch()? {
            for event in batch {
                events += 1;
                marks.see(event);
                operations += u64::from(event.op.calls_allocator());
                locks += u64::from(spec.memory_policy.lock(&event.op).is_some());
                last_events[event.thread.0 as usize] = events;
            }
        }
        reader.rewind()?;
        let mut stops = marks.finish();
        stops.extend(pause_after);
        stops.sort_unstable();
        stops.dedup();
        let (forks, memory_policy) = (ForkSchedule::new(&spec.forks), spec.memory_policy);
        // Reserved here: while a window is open, the replay must not allocate.
        let moments = Moments { began_ns: 0, stops: Vec::with_capacity(stops.len()) };
        Ok(PreparedTrace { reader, stops, pause_after, memory_policy, forks, operations, locks, moments, last_events })
    }

    /// The operations that are omitted on another allocator's `malloc`.
    pub(crate) fn left_out_of_malloc(&self) -> Option<Skipped> {
        let reason = "mlockall is omitted on another allocator: it would also lock the replay's own memory";
        (self.locks > 0).then(|| Skipped::new("memory policy", reason))
    }
}

/// Observes memory while a window is open.
pub(crate) trait WindowObserver {
    /// Opens the window. Traps are counted from here on.
    fn begin(&mut self);

    /// The memory of the process when the window was opened, if the whole process is observed.
    fn start(&self) -> Option<StartMemory> {
        None
    }

    /// Called after each piece of a batch of events.
    fn drain_traps_if_half_full(&mut self) {}

    /// Records the state of memory after this number of events.
    fn mark(&mut self, events: u64) -> Mark;

    /// Closes the window and returns its traps.
    fn end(&mut self) -> Option<u64>;
}

/// Performs the events of a window.
pub(crate) trait WindowDriver {
    /// Performs an event; `number` is its index in the trace.
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError>;

    /// Called before each piece of a batch: up to the next stop or fork.
    fn piece_begins(&mut self) {}

    /// Called after each piece of so many events, which took so much processor time.
    fn piece_done(&mut self, _events: usize, _cpu_ns: u64) {}

    /// Called at each stop, after this number of events.
    fn stop(&mut self, events: u64) -> Result<(), ChildError>;

    /// Forks a child, or makes one exit.
    fn fork(&mut self, _step: ForkStep) -> Result<(), ChildError> {
        Ok(())
    }

    /// Locks or unlocks the heap, as the program did with its memory. Does nothing without a heap.
    fn lock(&mut self, _lock: MemoryLock) {}

    /// The address of the reservation, if there is one.
    fn base(&self) -> Option<u64> {
        None
    }
}

/// The events performed, and the time that this took without reading the trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Driven {
    pub(crate) events: u64,
    time: Duration,
    cpu_ns: u64,
}

impl Driven {
    /// The times of a window with this many calls.
    pub(crate) fn sample(&self, calls: u64) -> Sample {
        Sample { cpu_ns: self.cpu_ns, wall_ns: self.time.as_nanos() as u64, calls, start_end_ns: None }
    }
}

/// Performs every event.
pub(crate) fn drive(trace: &mut PreparedTrace, driver: &mut impl WindowDriver) -> Result<Driven, ChildError> {
    let mut driven = Driven::default();
    trace.moments.stops.clear();
    trace.moments.began_ns = monotonic_ns();
    let mut stops = trace.stops.iter().copied();
    let mut next_stop = stops.next().unwrap_or(u64::MAX);
    while let Some(batch) = trace.reader.next_batch()? {
        let mut rest = batch;
        while !rest.is_empty() {
            let next = trace.forks.next_event().map_or(next_stop, |fork| fork.min(next_stop));
            let piece_events = rest.len().min((next - driven.events).try_into().unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(piece_events);
            driver.piece_begins();
            let (start, cpu_before_ns) = (Instant::now(), thread_cpu_ns());
            for event in now {
                if let Some(change) = trace.memory_policy.change(&event.op) {
                    apply_memory_policy(change)?;
                    if let Some(lock) = trace.memory_policy.lock(&event.op) {
                        driver.lock(lock);
                    }
                }
                driver.step(event, driven.events)?;
                driven.events += 1;
            }
            let cpu_ns = thread_cpu_ns() - cpu_before_ns;
            driven.cpu_ns += cpu_ns;
            driven.time += start.elapsed();
            driver.piece_done(now.len(), cpu_ns);
            if driven.events == next_stop {
                trace.moments.stops.push(Moment { events: driven.events, time_ns: monotonic_ns() });
                driver.stop(driven.events)?;
                next_stop = stops.next().unwrap_or(u64::MAX);
                if trace.pause_after == Some(driven.events)
                    && let Some(base) = driver.base()
                {
                    pause(base, driven.events);
                }
            }
            while let Some(step) = trace.forks.due(driven.events) {
                driver.fork(step)?;
            }
            rest = later;
        }
    }
    Ok(driven)
}

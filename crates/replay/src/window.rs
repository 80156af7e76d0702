//! The measured window: every event of a trace, in order, with stops at the marks.

use std::time::{Duration, Instant};

use hksim_engine::{ForkSchedule, ForkStep, MemoryPolicyRule, PointFinder};
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::{Event, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;

use crate::error::ChildError;
use crate::memory_policy::obey;
use crate::pause::pause;
use crate::result::{Mark, Skipped};
use crate::spec::ReplaySpec;

/// A trace made ready: read once, so that reading it again takes no page fault.
pub(crate) struct Prepared {
    pub(crate) reader: WithProfiles<TraceReader>,
    /// See [`PointFinder::finish`].
    pub(crate) stops: Vec<u64>,
    /// Events after which the process stops itself; one of the stops.
    pause_after: Option<u64>,
    /// Whether the program's memory policies are in force.
    pub(crate) memory_policy: MemoryPolicyRule,
    /// When children are forked, and exit.
    pub(crate) forks: ForkSchedule,
    /// Calls of the allocator in the whole trace.
    pub(crate) operations: u64,
    /// Calls of `mlockall` and `munlockall` that are to be done.
    locks: u64,
    /// By thread: events up to and including its last one.
    pub(crate) last_events: Vec<u64>,
}

impl Prepared {
    /// Reads a trace through and rewinds it.
    pub(crate) fn new(
        mut reader: WithProfiles<TraceReader>,
        pause_after: Option<u64>,
        spec: &ReplaySpec,
    ) -> Result<Prepared, ChildError> {
        let mut marks = PointFinder::default();
        let (mut operations, mut events, mut locks) = (0, 0, 0);
        let mut last_events = vec![0; reader.summary().threads as usize];
        while let Some(batch) = reader.next_batch()? {
            for event in batch {
                events += 1;
                marks.see(event);
                operations += u64::from(calls_allocator(&event.op));
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
        Ok(Prepared { reader, stops, pause_after, memory_policy, forks, operations, locks, last_events })
    }

    /// What is not done on a `malloc` that is not ours.
    pub(crate) fn left_out_of_malloc(&self) -> Option<Skipped> {
        let reason = "mlockall would lock the memory of the replay itself, too: it is not done for a foreign allocator";
        (self.locks > 0).then(|| Skipped::new("memory policy", reason))
    }
}

fn calls_allocator(op: &Op) -> bool {
    match op {
        Op::Alloc { .. }
        | Op::Realloc { .. }
        | Op::ReallocFree { .. }
        | Op::ReallocUnknown { .. }
        | Op::Free { .. }
        | Op::UsableSize { .. } => true,
        Op::FreeNull
        | Op::FreeUnknown
        | Op::AllocFailed { .. }
        | Op::ReallocFailed { .. }
        | Op::ThreadStart
        | Op::ThreadExit
        | Op::Fork { .. }
        | Op::ForkEnd { .. }
        | Op::Exec
        | Op::Mark { .. }
        | Op::Touch { .. }
        | Op::MemoryPolicy { .. } => false,
    }
}

/// What looks at memory while a window is open.
pub(crate) trait Watch {
    /// Begins the window: traps are counted from here on.
    fn begin(&mut self);

    /// Called after each batch of events.
    fn relieve(&mut self) {}

    /// Looks at memory after so many events.
    fn mark(&mut self, events: u64) -> Mark;

    /// Ends the window; returns its traps.
    fn end(&mut self) -> Option<u64>;
}

/// What drives an allocator, and is watched while it does.
pub(crate) trait Step {
    /// Performs an event; `number` is its place in the trace.
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError>;

    /// Called before each batch of events, which was read then.
    fn batch_begins(&mut self) {}

    /// Called after each batch of events.
    fn batch_done(&mut self) {}

    /// Called at each stop, after so many events.
    fn stop(&mut self, events: u64) -> Result<(), ChildError>;

    /// A child is forked, or exits.
    fn fork(&mut self, _step: ForkStep) -> Result<(), ChildError> {
        Ok(())
    }

    /// The program locks its memory, or unlocks it. Without a heap there is none.
    fn lock(&mut self, _lock: MemoryLock) {}

    /// Where the reservation lies, if there is one.
    fn base(&self) -> Option<u64> {
        None
    }
}

/// How long driving took, reading the trace left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Driven {
    pub(crate) events: u64,
    pub(crate) time: Duration,
}

/// Drives every event.
pub(crate) fn drive(trace: &mut Prepared, driver: &mut impl Step) -> Result<Driven, ChildError> {
    let mut driven = Driven::default();
    let mut stops = trace.stops.iter().copied();
    let mut next_stop = stops.next().unwrap_or(u64::MAX);
    while let Some(batch) = trace.reader.next_batch()? {
        let mut rest = batch;
        driver.batch_begins();
        while !rest.is_empty() {
            let next = trace.forks.next_event().map_or(next_stop, |fork| fork.min(next_stop));
            let before_stop = rest.len().min((next - driven.events).try_into().unwrap_or(usize::MAX));
            let (now, later) = rest.split_at(before_stop);
            let start = Instant::now();
            for event in now {
                if let Some(change) = trace.memory_policy.change(&event.op) {
                    obey(change)?;
                    if let Some(lock) = trace.memory_policy.lock(&event.op) {
                        driver.lock(lock);
                    }
                }
                driver.step(event, driven.events)?;
                driven.events += 1;
            }
            driven.time += start.elapsed();
            if driven.events == next_stop {
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
        driver.batch_done();
    }
    Ok(driven)
}

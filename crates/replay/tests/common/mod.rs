//! Traces for the tests, and replays of them.

use hksim_policy::Policy;
use std::path::{Path, PathBuf};

use hksim_engine::TouchRule;
use hksim_replay::{Measure, ReplaySpec, Replayed, Target, replay};
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, ThreadId};
use hksim_trace::generate::Workload;
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::TraceWriter;
use tempfile::TempDir;

/// A trace in a temporary directory.
pub struct Trace {
    folder: TempDir,
}

impl Trace {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("test.hkt")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A trace of (thread, operation) pairs, 100 ns apart.
    pub fn of(events: impl IntoIterator<Item = (u32, Op)>) -> Trace {
        let trace = Trace { folder: tempfile::tempdir().unwrap() };
        let origin = Origin::Imported { format: "test".into(), file: "test".into() };
        let header = Header::new(origin, TouchSource::Assumed, Clock::PerEvent);
        let mut writer = TraceWriter::create(&trace.path(), &header).unwrap();
        for (at, (thread, op)) in events.into_iter().enumerate() {
            writer.push(&Event::new(at as u64 * Clock::EVENT_NS, ThreadId(thread), op)).unwrap();
        }
        writer.finish(&Footer::default()).unwrap();
        trace
    }

    /// A trace from a generator, which is given as JSON.
    pub fn generated(workload: &str) -> Trace {
        let workload: Workload = serde_json::from_str(workload).unwrap();
        let trace = Trace { folder: tempfile::tempdir().unwrap() };
        let mut source = workload.source().unwrap();
        let mut writer = TraceWriter::create(&trace.path(), source.header()).unwrap();
        while let Some(batch) = source.next_batch().unwrap() {
            batch.iter().for_each(|event| writer.push(event).unwrap());
        }
        writer.finish(source.footer()).unwrap();
        trace
    }

    /// The specification of a replay with all measurements and without timing.
    pub fn spec(&self, on: Target, touch: TouchRule) -> ReplaySpec {
        ReplaySpec { measure: Measure::PAGES, ..ReplaySpec::ordered(self.path(), on, touch) }
    }

    pub fn replay(&self, design: &Policy, touch: TouchRule) -> Replayed {
        replay(&self.spec(Target::Native(Box::new(*design)), touch)).unwrap()
    }
}

/// A plain allocation.
pub fn malloc(object: u32, size: u64) -> Op {
    Op::Alloc {
        object: ObjectId(object),
        size,
        align_log2: 0,
        call: AllocCall::Malloc,
        initial_touch: InitialTouch::None,
    }
}

/// A plain reallocation.
pub fn realloc(object: u32, size: u64) -> Op {
    Op::Realloc { object: ObjectId(object), size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None }
}

/// A plain free.
pub fn free(object: u32) -> Op {
    Op::Free { object: ObjectId(object) }
}

/// A small server: four threads, cross-thread frees, 24 MiB.
pub fn server() -> Trace {
    Trace::generated(r#"{"name":"server","live":25165824,"threads":4,"events":200000,"seed":7}"#)
}

/// A policy from JSON. Missing fields have their defaults.
pub fn design(json: &str) -> Policy {
    serde_json::from_str(json).unwrap()
}

/// An error with the reason if this machine cannot distinguish kinds of installs.
pub fn needs_kinds(replayed: &Replayed) -> Result<(), String> {
    let reason = replayed.skipped.iter().find(|skipped| skipped.figure == "traps");
    reason.map_or(Ok(()), |skipped| Err(skipped.reason.clone()))
}

/// An error with the reason if this machine installs folios of sizes between 4 KiB and 2 MiB.
pub fn needs_single_pages(replayed: &Replayed) -> Result<(), String> {
    let sizes = &replayed.environment.mthp_enabled;
    if sizes.is_empty() { Ok(()) } else { Err(format!("sizes of huge pages below 2M are on: {}", sizes.join(", "))) }
}

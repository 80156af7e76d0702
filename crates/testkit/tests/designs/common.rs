//! Traces, predictions and measurements for the tests.

use std::path::PathBuf;

use hksim_engine::{Comparison, Design, DesignLabel, ForkWindow, TouchRule};
use hksim_linux_mm::{KernelConfig, PMD_ORDER, SizeMode, ThpConfig, ThpMode};
use hksim_replay::{Measure, ReplaySpec, Replayed, Target, replay};
use hksim_sim::{Addresses, DesignConfig, Marks, Simulated, simulate_design};
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::{TraceReader, TraceWriter};
use tempfile::TempDir;

/// A trace in a temporary directory.
pub struct Trace {
    folder: TempDir,
}

impl Trace {
    pub fn of(events: &[Event]) -> Trace {
        let trace = Trace { folder: tempfile::tempdir().expect("a temporary folder") };
        let origin = Origin::Imported { format: "test".into(), file: "test".into() };
        let header = Header::new(origin, TouchSource::Assumed, Clock::PerEvent);
        let mut writer = TraceWriter::create(&trace.path(), &header).expect("a trace");
        // A file numbers threads in the order of their first events.
        let mut threads = Vec::new();
        for event in events {
            let known = threads.iter().position(|&thread| thread == event.thread);
            let thread = ThreadId(known.unwrap_or(threads.len()) as u32);
            if known.is_none() {
                threads.push(event.thread);
            }
            writer.push(&Event { thread, ..*event }).expect("a valid event");
        }
        writer.finish(&Footer::default()).expect("a trace");
        trace
    }

    /// Operations of thread 0.
    pub fn of_ops(ops: impl IntoIterator<Item = Op>) -> Trace {
        Trace::of(&events_of(ops))
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("test.hkt")
    }
}

/// Operations of thread 0, 100 ns apart.
pub fn events_of(ops: impl IntoIterator<Item = Op>) -> Vec<Event> {
    let numbered = ops.into_iter().enumerate();
    numbered.map(|(at, op)| Event::new(at as u64 * Clock::EVENT_NS, ThreadId(0), op)).collect()
}

/// A plain allocation.
pub fn malloc(object: u32, size: u64) -> Op {
    let (object, initial_touch) = (ObjectId(object), InitialTouch::All);
    Op::Alloc { object, size, align_log2: 0, call: AllocCall::Malloc, initial_touch }
}

/// A free.
pub fn free(object: u32) -> Op {
    Op::Free { object: ObjectId(object) }
}

/// The prediction for a design.
pub type Predicted<D> = Simulated<DesignLabel<<D as Design>::Settings>>;

/// How a trace is run on a design.
pub struct Setup<D: Design> {
    pub settings: D::Settings,
    pub touch: TouchRule,
    pub kernel: KernelConfig,
    pub forks: Vec<ForkWindow>,
}

impl<D: Design + Send + 'static> Setup<D> {
    /// Without huge pages; the caller holds [`NoThp`].
    pub fn without_thp(settings: D::Settings, touch: TouchRule) -> Result<Setup<D>, String> {
        let thp = ThpConfig { global: ThpMode::Never, sizes: [SizeMode::Never; PMD_ORDER + 1] };
        let kernel = KernelConfig { thp, ..hksim_conformance::kernel_config().map_err(|why| why.to_string())? };
        Ok(Setup { settings, touch, kernel, forks: Vec::new() })
    }

    pub fn config(&self) -> DesignConfig<D> {
        DesignConfig::<D> {
            policy: DesignLabel::of::<D>(&self.settings),
            touch: self.touch,
            kernel: self.kernel.clone(),
            tlb: None,
            memory_policy: Default::default(),
            addresses: Addresses::default(),
            forks: self.forks.clone(),
            counted: Default::default(),
            file: None,
        }
    }

    pub fn predict(&self, trace: &Trace) -> Predicted<D> {
        let mut source = TraceReader::open(&trace.path()).expect("a trace");
        simulate_design::<D>(&mut source, &self.config(), Marks::Collect, &|_| {}).expect("a simulation")
    }

    pub fn spec(&self, trace: &Trace) -> ReplaySpec {
        let on = Target::design::<D>(&self.settings).expect("settings are JSON");
        let spec = ReplaySpec::ordered(trace.path(), on, self.touch);
        ReplaySpec { measure: Measure::PAGES, forks: self.forks.clone(), ..spec }
    }

    pub fn measure(&self, trace: &Trace) -> Replayed {
        replay(&self.spec(trace)).expect("a replay")
    }

    /// Predicts and measures a trace. Returns both if all figures are equal.
    ///
    /// # Errors
    /// This machine cannot measure everything.
    pub fn check(&self, trace: &Trace, label: &str) -> Result<(Predicted<D>, Replayed), String> {
        let (predicted, measured) = (self.predict(trace), self.measure(trace));
        if let Some(traps) = measured.skipped.iter().find(|skipped| skipped.figure == "traps") {
            return Err(traps.reason.clone());
        }
        let comparison = Comparison::of(&predicted.figures(), &measured.figures());
        let differences: Vec<String> = comparison.differences.iter().map(ToString::to_string).collect();
        assert!(differences.is_empty(), "{label}: {}\n{:?}", differences.join("\n"), measured.unclassified);
        assert!(comparison.is_exact(), "{label}: not measured: {:?} {:?}", comparison.not_measured, measured.skipped);
        assert_eq!(measured.unclassified_pages, Some(0), "{label}: {:?}", measured.unclassified);
        assert!(measured.marks.iter().all(|mark| mark.inconsistent_pages == 0), "{label}");
        assert_eq!((measured.control.faults, measured.control.traps), (0, Some(0)), "{label}: the control run");
        Ok((predicted, measured))
    }
}

/// Disables transparent huge pages in this process and its children until dropped.
pub struct NoThp;

impl NoThp {
    pub fn new() -> Result<NoThp, String> {
        if disable_thp(1) { Ok(NoThp) } else { Err("prctl(PR_SET_THP_DISABLE) is refused".into()) }
    }
}

impl Drop for NoThp {
    fn drop(&mut self) {
        disable_thp(0);
    }
}

fn disable_thp(disabled: libc::c_ulong) -> bool {
    // SAFETY: a setting of this process, which its children inherit.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disabled, 0, 0, 0) == 0 }
}

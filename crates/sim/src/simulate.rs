//! Simulates one trace under one design.

use hksim_engine::{DriveError, ForkWindow, MemoryPolicyRule, PageSet, PointFinder, TouchRule, even_points};
use hksim_linux_mm::KernelConfig;
use hksim_policy::{Policy, PolicyError};
use hksim_trace::error::TraceError;
use hksim_trace::source::EventSource;
use thiserror::Error;

use crate::addresses::Addresses;
use crate::placed::{self, Points};
use crate::pump::pump;
use crate::report::{SimReport, TraceLabel};
use crate::tlb::Geometry;

/// Configuration of a simulation.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The allocator's policy.
    pub policy: Policy,
    /// How the application touches its blocks.
    pub touch: TouchRule,
    /// The modelled kernel.
    pub kernel: KernelConfig,
    /// The core whose TLB is modelled, if any.
    pub tlb: Option<&'static Geometry>,
    /// Whether the program's memory policies are applied.
    pub memory_policy: MemoryPolicyRule,
    /// Addresses of mmaps without a hint.
    pub addresses: Addresses,
    /// Children that the program forks.
    pub forks: Vec<ForkWindow>,
    /// The trace file's name, for the report.
    pub file: Option<String>,
}

impl Default for SimConfig {
    /// The default policy on Linux 6.18 with default settings, for a program that touches every byte of its blocks once.
    fn default() -> SimConfig {
        SimConfig {
            policy: Policy::DEFAULT,
            touch: TouchRule::All,
            kernel: KernelConfig::default(),
            tlb: None,
            memory_policy: MemoryPolicyRule::default(),
            addresses: Addresses::default(),
            forks: Vec::new(),
            file: None,
        }
    }
}

/// Errors of a simulation.
#[derive(Debug, Error)]
pub enum SimError {
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The policy is invalid.
    #[error("invalid policy: {0}")]
    Policy(#[from] PolicyError),
    /// The allocator cannot serve an event.
    #[error("event {event}: {source}")]
    Drive {
        /// Number of the event, from 1.
        event: u64,
        /// What went wrong.
        source: DriveError,
    },
    /// An access raised SIGBUS, because the hugetlb pool had no free page.
    #[error(
        "event {event}: the hugetlb pool has no page for a write (SIGBUS: a copy after a fork needs another page); \
         enlarge the pool (vm.nr_hugepages, --hugetlb-pool) or choose another --huge"
    )]
    Killed {
        /// Number of the event, from 1; 0 if no event was performed yet.
        event: u64,
    },
}

/// The present pages after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedPages {
    /// Number of events performed.
    pub event: u64,
    /// Present pages.
    pub pages: PageSet,
    /// Bytes that the kernel may drop: marked by `MADV_FREE` and not written since (smaps `LazyFree`).
    pub lazy_free_bytes: u64,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// All figures.
    pub report: SimReport,
    /// Page sets at every mark and at the end, if requested.
    pub marks: Vec<MarkedPages>,
}

/// Which page sets to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// None.
    Skip,
    /// At the trace's marks and the end; without marks at 16 evenly spaced points and the end ([`PointFinder`]).
    Collect,
    /// After this event, and at the end.
    At(u64),
}

/// Simulates a source, which must be at its start. Calls `progress` with the number of events performed so far.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or the allocator cannot serve an event.
pub fn simulate(
    source: &mut (dyn EventSource + Send),
    config: &SimConfig,
    marks: Marks,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Simulated, SimError> {
    let trace = TraceLabel::of(config.file.clone(), source);
    let summary = *source.summary();
    let points = Points::new(summary.events, wanted_points(source, marks)?, marks != Marks::Skip);
    let mut runs = [placed::start(&[config], trace, summary, points)?];
    pump(source, &mut runs, progress)?;
    let [run] = runs;
    let (reports, marks) = run.finish();
    let report = reports.into_iter().next().flatten();
    let report = report.unwrap_or_else(|| unreachable!("the leader of a placement never parts from it"));
    Ok(Simulated { report, marks })
}

/// The points at which page sets are taken. Leaves the source at its start.
fn wanted_points(source: &mut dyn EventSource, marks: Marks) -> Result<Vec<u64>, TraceError> {
    match marks {
        Marks::Skip => Ok(even_points(source.summary().events)),
        Marks::At(event) => Ok(vec![event]),
        Marks::Collect => {
            let mut finder = PointFinder::default();
            while let Some(batch) = source.next_batch()? {
                batch.iter().for_each(|event| finder.see(event));
            }
            source.rewind()?;
            Ok(finder.finish())
        }
    }
}

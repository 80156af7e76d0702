//! Simulates one trace under one design.

use hksim_engine::{
    DriveError, Figures, ForkWindow, MemoryPolicyRule, PageSet, PagesAt, PointFinder, TouchRule, even_points,
};
use hksim_linux_mm::KernelConfig;
use hksim_policy::{Policy, PolicyError};
use hksim_trace::error::TraceError;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::addresses::Addresses;
use crate::placed::{self, Placed, Points};
use crate::pump::pump;
use crate::report::{SimReport, TraceLabel};
use crate::tlb::Geometry;

/// What a simulation counts besides pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// Nothing.
    #[default]
    Pages,
    /// The paths of the allocator's code, for [`SimReport::paths`].
    Paths,
    /// What predictions of time need: these paths, and accesses to cache lines, for [`SimReport::lines`]. Takes some
    /// hundred instructions more per event, and about two per line of a long range that is touched.
    Time,
}

/// Configuration of a simulation. `P` configures the allocator: a [`Policy`] for the SuperSlab allocator, and a
/// [`DesignLabel`](hksim_engine::DesignLabel) for any other.
#[derive(Clone, Debug)]
pub struct SimConfig<P = Policy> {
    /// The allocator's policy or settings.
    pub policy: P,
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
    /// What is counted besides pages.
    pub counted: Counted,
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
            counted: Counted::Pages,
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
    /// No design has this name.
    #[error("the design `{design}` is not known")]
    UnknownDesign {
        /// The name.
        design: String,
    },
    /// A design cannot start.
    #[error("the design `{design}` cannot start: errno {errno}; check its settings and the limits of the kernel")]
    Start {
        /// Its name.
        design: &'static str,
        /// Its error: 22 (EINVAL) for a setting out of range, otherwise of a system call.
        errno: i32,
    },
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
pub struct Simulated<P = Policy> {
    /// All figures.
    pub report: SimReport<P>,
    /// Page sets at every mark and at the end, if requested.
    pub marks: Vec<MarkedPages>,
}

impl<P> Simulated<P> {
    /// The figures that a replay measures, too.
    pub fn figures(&self) -> Figures {
        let report = &self.report;
        let pages = self.marks.iter().map(|mark| PagesAt { event: mark.event, pages: mark.pages.clone() });
        Figures {
            placement_digest: Some(report.placement_digest.clone()),
            installs: Some(report.installs.by_kind),
            faults: Some(report.faults),
            traps: Some(report.traps),
            rss_bytes_peak: Some(report.rss_bytes_peak),
            rss_bytes_end: Some(report.rss_bytes_end),
            vmas_peak: Some(report.vmas_peak),
            page_table_bytes_peak: Some(report.page_table_bytes_peak),
            os_calls: Some(report.os_calls),
            os_calls_failed: Some(report.os_calls_failed),
            requests_failed: report.requests_failed,
            events: report.events,
            pages: pages.collect(),
        }
    }
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
    Ok(finish(run))
}

/// The result of a placement's leader.
pub(crate) fn finish<P>(run: Box<dyn Placed<P>>) -> Simulated<P> {
    let (reports, marks) = run.finish();
    let report = reports.into_iter().next().flatten();
    let report = report.unwrap_or_else(|| unreachable!("the leader of a placement never parts from it"));
    Simulated { report, marks }
}

/// The points at which page sets are taken. Leaves the source at its start.
pub(crate) fn wanted_points(source: &mut dyn EventSource, marks: Marks) -> Result<Vec<u64>, TraceError> {
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

//! Simulations with their system time.

use hksim_cost_model::system_time::{huge_locality, locality};
use hksim_cost_model::{Calls, KernelWork, LineAccesses, LinePart, Profile, SystemTime, Work};
use hksim_policy::vocabulary::Prefault;
use hksim_sim::lines::{Accessor, LINE_BYTES, Reuse};
use hksim_sim::{LineCounts, SimReport};
use serde::{Deserialize, Serialize};

use crate::figures::Figures;

/// A simulation, with its system time if a profile was given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Priced {
    /// The simulation.
    #[serde(flatten)]
    pub report: SimReport,
    /// The system time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
}

impl Priced {
    /// Adds the system time to a report.
    pub fn new(report: SimReport, profile: Option<&Profile>) -> Priced {
        let system_time = profile.map(|profile| SystemTime::of(&work(&report), profile));
        Priced { report, system_time }
    }
}

/// The kernel's work for a simulated design.
pub fn work(report: &SimReport) -> Work {
    let (kinds, done, calls) = (report.installs.by_kind, &report.page_operations, report.os_calls);
    let by_hand = if report.policy.prefault == Prefault::Touch { report.installs.by_reason.prefault } else { 0 };
    Work::from(&KernelWork {
        installs: [kinds.base_4k, kinds.mthp, kinds.thp, kinds.hugetlb, kinds.zero, kinds.cow],
        operations: &done.operations,
        refaults: &done.refaults,
        small: locality(done.fault_spacing.iter(), by_hand),
        huge: huge_locality(done.huge_fault_spacing.iter()),
        footprint_bytes: report.rss_bytes_peak,
        pmd_splits: report.pmd_splits,
        reuses: report.forks.iter().map(|fork| fork.cow_reuses).sum(),
        calls: Calls { map: calls.mmap, unmap: calls.munmap, advise: calls.madvise },
    })
}

/// The accesses to cache lines of a simulated design, as they are priced. The kernel's are part of its faults.
pub fn line_accesses(counts: &LineCounts) -> Vec<LineAccesses> {
    let parts = |accessor| match accessor {
        Accessor::Program => Some((LinePart::ProgramSequential, LinePart::ProgramIsolated)),
        Accessor::Filling => Some((LinePart::FillingSequential, LinePart::FillingIsolated)),
        Accessor::Bookkeeping => Some((LinePart::Bookkeeping, LinePart::Bookkeeping)),
        Accessor::Kernel => None,
    };
    let mut lines = Vec::new();
    for Reuse { accessor, is_huge, lines: reuse, accesses } in counts.reuses() {
        let Some((sequential, isolated)) = parts(accessor) else { continue };
        let reuse_bytes = reuse * LINE_BYTES;
        for (part, accesses) in [(sequential, accesses.sequential), (isolated, accesses.isolated)] {
            lines.push(LineAccesses { part, is_huge, reuse_bytes, accesses });
        }
    }
    lines
}

/// The figures of a row.
pub fn figures(row: &Priced) -> Figures {
    Figures::of(&row.report, row.system_time.as_ref().and_then(|time| time.price))
}

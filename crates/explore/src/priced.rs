//! Simulations with their times.

use hksim_cost_model::system_time::{huge_locality, locality, program_locality};
use hksim_cost_model::{Caches, Calls, KernelWork, Locality, Profile, SystemTime, Work};
use hksim_policy::Policy;
use hksim_sim::{Counted, LineCounts, SimReport};
use hksim_time_model::{Time, not_calibrated};
use serde::{Deserialize, Serialize};

use crate::described::Described;
use crate::figures::{Figure, Figures};

/// A simulation, with its times if a profile was given. `P` describes the allocator, as in [`SimReport`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Priced<P = Policy> {
    /// The simulation.
    #[serde(flatten)]
    pub report: SimReport<P>,
    /// The system time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
    /// The time of calls and accesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Why a profile gives no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_skipped: Option<String>,
}

/// The figure that designs are compared by if none was named: time, if on each trace it is known of all of them or of at
/// least two. Designs without a time are named then, and not compared.
pub fn goal<P>(rows: &[Priced<P>], rows_per_trace: usize) -> Figure {
    let is_compared = |rows: &[Priced<P>]| {
        let timed = rows.iter().filter(|row| row.time.is_some()).count();
        timed == rows.len() || timed >= 2
    };
    let has_times = !rows.is_empty() && rows.chunks(rows_per_trace.max(1)).all(is_compared);
    if has_times { Figure::Time } else { Figure::Installs }
}

/// What a simulation of a policy has to count so that a profile gives its time. Only pages if it cannot.
pub fn counted(policy: &Policy, profile: Option<&Profile>) -> Counted {
    let is_known = profile.is_some_and(|profile| profile.memory.is_some()) && not_calibrated(policy).is_none();
    if is_known { Counted::Time } else { Counted::Pages }
}

impl<P: Described> Priced<P> {
    /// Adds the times to a report.
    pub fn new(report: SimReport<P>, profile: Option<&Profile>) -> Priced<P> {
        let Some(profile) = profile else {
            return Priced { report, system_time: None, time: None, time_skipped: None };
        };
        let system_time = SystemTime::of(&work(&report), profile);
        let (time, time_skipped) = match P::time(&report, profile) {
            Ok(time) => (Some(time), None),
            Err(why) => (None, Some(why)),
        };
        Priced { report, system_time: Some(system_time), time, time_skipped }
    }
}

/// The kernel's work for a simulated design, in a run that repeats: as calibrations and measurements of system time do.
pub fn work<P: Described>(report: &SimReport<P>) -> Work {
    Work::from(&repeated_work(report))
}

/// That work, as it was counted.
pub fn repeated_work<P: Described>(report: &SimReport<P>) -> KernelWork<'_> {
    let small = locality(report.page_operations.fault_spacing.iter(), by_hand(report));
    kernel_work(report, small, Caches::Warm(report.rss_bytes_peak))
}

/// The kernel's work for a simulated design, and what it costs the program in user mode, in a program that runs once.
pub fn program_work<P: Described>(report: &SimReport<P>) -> KernelWork<'_> {
    let between = report.lines.as_ref().map(LineCounts::between_faults).unwrap_or_default();
    let spacing = report.page_operations.fault_spacing.iter();
    kernel_work(report, program_locality(spacing, by_hand(report), between.into_iter()), Caches::Cold)
}

/// First touches by a prefault that writes to page after page.
fn by_hand<P: Described>(report: &SimReport<P>) -> u64 {
    if report.policy.prefaults_by_hand() { report.installs.by_reason.prefault } else { 0 }
}

fn kernel_work<P: Described>(report: &SimReport<P>, small: Locality, caches: Caches) -> KernelWork<'_> {
    let (kinds, done, calls) = (report.installs.by_kind, &report.page_operations, report.os_calls);
    KernelWork {
        installs: [kinds.base_4k, kinds.mthp, kinds.thp, kinds.hugetlb, kinds.zero, kinds.cow],
        operations: &done.operations,
        refaults: &done.refaults,
        small,
        huge: huge_locality(done.huge_fault_spacing.iter()),
        caches,
        pmd_splits: report.pmd_splits,
        reuses: report.forks.iter().map(|fork| fork.cow_reuses).sum(),
        calls: Calls { map: calls.mmap, unmap: calls.munmap, advise: calls.madvise, remap: calls.mremap },
    }
}

/// The figures of a row.
pub fn figures<P>(row: &Priced<P>) -> Figures {
    Figures {
        system_time: row.system_time.as_ref().and_then(|time| time.price),
        ns_per_call: row.time.as_ref().map(|time| time.ns_per_call),
        parts_ns_per_call: row.time.as_ref().map(|time| time.parts_ns_per_call),
        ..Figures::of(&row.report)
    }
}

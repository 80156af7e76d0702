//! The time of an explained design: its terms, and what of the kernel's time each install takes.

use std::collections::BTreeMap;

use hksim_cost_model::{KernelPart, Profile};
use hksim_policy::Policy;
use hksim_sim::Explained;
use hksim_sim::explain::InstallWork;
use hksim_time_model::{Term, kernel_terms};

use crate::described::Described;
use crate::priced::{Priced, program_work, repeated_work};

/// A term, and whether it is divided by the keys of installs.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedTerm {
    /// The term.
    pub term: Term,
    /// Whether it is the time of installs, each of which has its keys.
    pub is_by_key: bool,
}

/// The times of a design, and their terms.
#[derive(Clone, Debug)]
pub struct ExplainedTime<P = Policy> {
    /// The simulation that counts what predictions of time need, with its times.
    pub priced: Priced<P>,
    /// The terms of its time per call; those of the kernel alone if only its system time is known, and none if that is not.
    pub terms: Vec<ExplainedTerm>,
    /// Nanoseconds per call of the allocator that each install takes, by what it is for the kernel.
    pub ns_per_install: BTreeMap<InstallWork, f64>,
}

impl<P: Described> ExplainedTime<P> {
    /// Divides the times of a simulation. `explained` is the same design, explained.
    pub fn new(priced: Priced<P>, explained: &Explained<P>, profile: &Profile) -> ExplainedTime<P> {
        let report = &priced.report;
        let user = priced.time.as_ref().map(|time| P::user_terms(report, time, profile)).unwrap_or_default();
        let kernel = if priced.time.is_some() { program_work(report) } else { repeated_work(report) };
        let kernel = kernel_terms(&kernel, report.calls, profile).unwrap_or_default();
        let mut ns_per_install = BTreeMap::new();
        for (part, term) in &kernel {
            let installs = install_work(*part).map(|work| (work, installs(explained, work)));
            if let Some((work, installs)) = installs.filter(|&(_, installs)| installs > 0) {
                ns_per_install.insert(work, term.ns_per_call / installs as f64);
            }
        }
        let user = user.into_iter().map(|term| ExplainedTerm { term, is_by_key: false });
        let kernel = kernel.into_iter().map(|(part, term)| {
            let is_by_key = install_work(part).is_some_and(|work| ns_per_install.contains_key(&work));
            ExplainedTerm { term, is_by_key }
        });
        let terms = user.chain(kernel).collect();
        ExplainedTime { priced, terms, ns_per_install }
    }
}

/// The installs that are a part of the kernel's work.
fn install_work(part: KernelPart) -> Option<InstallWork> {
    match part {
        KernelPart::Installs(kind) => Some(InstallWork::Kind(kind)),
        KernelPart::Populated => Some(InstallWork::Populated),
        KernelPart::Collapsed => Some(InstallWork::Collapsed),
        KernelPart::PageTables
        | KernelPart::Purges
        | KernelPart::Unmapped
        | KernelPart::Moved
        | KernelPart::Splits
        | KernelPart::Forks
        | KernelPart::Calls => None,
    }
}

fn installs<P>(explained: &Explained<P>, work: InstallWork) -> u64 {
    explained.by_work.get(&work).map_or(0, |breakdown| breakdown.reason.values().sum())
}

//! Simulates many designs on one trace: one decode for many placements, one placement for many designs.
//!
//! Designs whose [`Placement`] is equal share a run (`placed`) for as long as their page operations return the same.
//! Those that part from the leader form another group, which is simulated in a later pass. So the number of placements
//! that are really run is that of the different placements on this trace, and no list says which settings matter.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hksim_engine::{MemoryPolicyRule, TouchRule, even_points};
use hksim_policy::vocabulary::{Prefault, PrefaultScope, Purge};
use hksim_policy::{Placement, Policy};
use hksim_trace::error::TraceError;
use hksim_trace::header::TouchSource;
use hksim_trace::source::EventSource;

use crate::placed::{self, Placed, Points, may_share};
use crate::pump::pump;
use crate::report::{SimReport, TraceLabel};
use crate::simulate::{SimConfig, SimError};

/// Opens a source at its start. Every pass of a sweep opens its own source.
pub type OpenSource = Box<dyn Fn() -> Result<Box<dyn EventSource + Send>, TraceError> + Send + Sync>;

/// A trace to sweep over.
pub struct Input {
    /// The file name, if any.
    pub file: Option<String>,
    /// Opens the trace.
    pub open: OpenSource,
}

/// Is told about the work of a sweep. Its unit is one event performed by one placement.
pub trait SweepProgress: Sync {
    /// There is more work than was known.
    fn expect(&self, events: u64);
    /// Some of it is done.
    fn done(&self, events: u64);
    /// The report of a configuration is complete.
    fn finished(&self, _config: usize, _report: &SimReport) {}
}

impl SweepProgress for () {
    fn expect(&self, _: u64) {}
    fn done(&self, _: u64) {}
}

/// Placements that are run at the same time, for each thread of the pool: they take their time in turn, so that none
/// waits for a slow one. Memory holds the tables of this many placements.
const PLACEMENTS_PER_THREAD: usize = 4;

/// Simulates every configuration on a trace, on the threads of the current rayon pool: a report for each, in their
/// order. The result does not depend on the number of threads.
///
/// # Errors
/// The error of the first configuration that fails.
pub fn sweep(input: &Input, configs: &[SimConfig], progress: &dyn SweepProgress) -> Result<Vec<SimReport>, SimError> {
    let source = (input.open)()?;
    let events = source.summary().events;
    let mut waiting = groups(configs, source.header().touch);
    drop(source);
    progress.expect(events.saturating_mul(waiting.len() as u64));
    let mut rows: Vec<Option<SimReport>> = configs.iter().map(|_| None).collect();
    while !waiting.is_empty() {
        let together = waiting.len().min(PLACEMENTS_PER_THREAD * rayon::current_num_threads());
        let groups: Vec<Vec<usize>> = waiting.drain(..together).collect();
        let runs = run(input, configs, &groups, progress)?;
        for (group, run) in groups.into_iter().zip(runs) {
            let (reports, _) = run.finish();
            let mut parted = Vec::new();
            for (row, report) in group.into_iter().zip(reports) {
                match report {
                    Some(report) => {
                        progress.finished(row, &report);
                        rows[row] = Some(report);
                    }
                    None => parted.push(row),
                }
            }
            if !parted.is_empty() {
                progress.expect(events);
                waiting.push_back(parted);
            }
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// What two designs must have in common to share a placement.
#[derive(PartialEq)]
struct Key {
    placement: Placement,
    touch: TouchRule,
    memory_policy: MemoryPolicyRule,
    contents: Option<Contents>,
}

/// What contents depend on beside the placement, for designs that purge by MADV_FREE, which keeps them. They are
/// tracked for these only, once for all that share a placement.
#[derive(PartialEq)]
struct Contents {
    /// A prefault can write zeros to pages that were purged.
    prefault: (Prefault, PrefaultScope),
    /// A new mapping reads as zeros.
    maps_hugetlb: bool,
}

impl Contents {
    fn of(policy: &Policy) -> Option<Contents> {
        (policy.purge == Purge::Free).then_some(Contents {
            prefault: (policy.prefault, policy.prefault_scope),
            maps_hugetlb: policy.huge.is_hugetlb(),
        })
    }
}

/// The rows of each group of designs that may share a placement, in the order of their first rows.
fn groups(configs: &[SimConfig], touch: TouchSource) -> VecDeque<Vec<usize>> {
    let mut groups: Vec<(Option<Key>, Vec<usize>)> = Vec::new();
    for (row, config) in configs.iter().enumerate() {
        let key = may_share(config, touch).then(|| Key {
            placement: config.policy.split().0,
            touch: config.touch,
            memory_policy: config.memory_policy,
            contents: Contents::of(&config.policy),
        });
        match groups.iter_mut().find(|(other, _)| key.is_some() && *other == key) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((key, vec![row])),
        }
    }
    groups.into_iter().map(|(_, rows)| rows).collect()
}

/// Runs the placements of several groups in one pass over the trace.
fn run(
    input: &Input,
    configs: &[SimConfig],
    groups: &[Vec<usize>],
    progress: &dyn SweepProgress,
) -> Result<Vec<Box<dyn Placed>>, SimError> {
    let mut source = (input.open)()?;
    let summary = *source.summary();
    let label = TraceLabel::of(input.file.clone(), source.as_ref());
    let start = |rows: &Vec<usize>| {
        let designs: Vec<&SimConfig> = rows.iter().map(|&row| &configs[row]).collect();
        let points = Points::new(summary.events, even_points(summary.events), false);
        placed::start(&designs, label.clone(), summary, points)
    };
    let mut runs = groups.iter().map(start).collect::<Result<Vec<_>, SimError>>()?;
    let reported = AtomicU64::new(0);
    let placements = groups.len() as u64;
    pump(source.as_mut(), &mut runs, &|events| progress.done((events - reported.swap(events, Relaxed)) * placements))?;
    Ok(runs)
}

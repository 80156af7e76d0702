//! Times page operations on this machine.
//!
//! Each round performs every operation once on fresh memory and reads the processor time of this thread, so that being
//! preempted costs nothing; what other load does to caches and clocks stays in the figures, and shows as dispersion.

mod area;
mod calls;
mod fork;
mod pages;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hksim_linux::sysfs;

use crate::profile::{Cost, NotMeasured, Operation, Profile, VERSION};

/// The clock of this thread went wrong, or memory could not be mapped.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MeasureError {
    what: &'static str,
    source: std::io::Error,
}

impl MeasureError {
    fn last(what: &'static str) -> MeasureError {
        MeasureError { what, source: std::io::Error::last_os_error() }
    }
}

/// How long to measure: both bounds hold.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds, after one that warms up.
    pub rounds: u32,
    /// No round begins later.
    pub time_max: Duration,
}

/// What rounds found.
#[derive(Default)]
struct Samples {
    ns: BTreeMap<Operation, Vec<f64>>,
    skipped: BTreeMap<Operation, String>,
}

impl Samples {
    /// Notes the time of so many operations.
    fn add(&mut self, operation: Operation, number: u64, spent: Duration) {
        self.ns.entry(operation).or_default().push(spent.as_nanos() as f64 / number as f64);
    }

    fn skip(&mut self, operation: Operation, reason: impl Into<String>) {
        self.skipped.entry(operation).or_insert_with(|| reason.into());
    }
}

/// Measures this machine.
///
/// # Errors
/// Memory cannot be mapped, or a process not forked.
pub fn measure(effort: Effort) -> Result<Profile, MeasureError> {
    let began = Instant::now();
    round(&mut Samples::default())?;
    let mut samples = Samples::default();
    for _ in 0..effort.rounds {
        round(&mut samples)?;
        if began.elapsed() >= effort.time_max {
            break;
        }
    }
    let Samples { ns, skipped } = samples;
    let costs: BTreeMap<Operation, Cost> =
        ns.into_iter().filter_map(|(operation, ns)| Some((operation, Cost::of(ns)?))).collect();
    let skipped = skipped.into_iter().filter(|(operation, _)| !costs.contains_key(operation));
    Ok(Profile {
        version: VERSION,
        machine: processor(),
        processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u32),
        kernel: sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        elapsed_s: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        skipped: skipped.map(|(operation, reason)| NotMeasured { operation, reason }).collect(),
        costs,
    })
}

fn round(samples: &mut Samples) -> Result<(), MeasureError> {
    pages::base(samples)?;
    pages::populated(samples)?;
    pages::huge(samples)?;
    pages::mid_sizes(samples)?;
    pages::hugetlb(samples)?;
    calls::empty(samples)?;
    fork::costs(samples)
}

fn processor() -> String {
    let info = sysfs::text("/proc/cpuinfo").unwrap_or_default();
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.trim() == "model name").map_or("unknown".into(), |(_, name)| name.trim().to_string())
}

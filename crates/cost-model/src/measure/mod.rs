//! Times page operations on this machine.
//!
//! Each round performs every operation once on fresh memory and reads the processor time of this thread, so preemption
//! does not count. The effects of other load on caches and clocks remain in the figures and appear as dispersion. Only
//! the kernel's part of the time counts. It is measured with [`hksim_linux_probe::cpu_modes`], as in the runs that the
//! costs are applied to.

mod calls;
mod footprint;
mod fork;
mod lines;
mod pages;
mod samples;

use std::time::{Duration, Instant};

use hksim_linux_probe::area::yardstick;
use hksim_linux_probe::sysfs;

use crate::profile::{NotMeasured, Profile, VERSION};
use samples::{Samples, Sampling};

/// A system call that the measurement needs failed.
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

impl From<std::io::Error> for MeasureError {
    fn from(source: std::io::Error) -> MeasureError {
        MeasureError { what: "map memory", source }
    }
}

/// Rounds that are timed by the clock, per round with sampling.
const ROUNDS_PER_SAMPLED_ROUND: u32 = 2;

/// The limits of a measurement. It ends at the first one reached.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds, after one for warm-up.
    pub rounds: u32,
    /// No round starts after this time.
    pub time_max: Duration,
}

/// Measures this machine.
///
/// # Errors
/// Mapping memory or forking fails.
pub fn measure(effort: Effort) -> Result<Profile, MeasureError> {
    let began = Instant::now();
    round(&mut Samples::by_clock())?;
    let (mut samples, mut sampled) = (Samples::by_clock(), Samples::by_sampling());
    for number in 0..effort.rounds {
        round(&mut samples)?;
        // Sampling takes time itself, so it has separate rounds.
        if let Some(sampled) = sampled.as_mut().filter(|_| number.is_multiple_of(ROUNDS_PER_SAMPLED_ROUND)) {
            sampled.set_sampling(Sampling::On);
            round(sampled)?;
            sampled.set_sampling(Sampling::Off);
        }
        if began.elapsed() >= effort.time_max {
            break;
        }
    }
    let kernel_share = sampled.as_ref().and_then(Samples::kernel_share);
    let (costs, skipped) = samples.finish(sampled.as_ref());
    let memory = Some(lines::costs()?);
    Ok(Profile {
        version: VERSION,
        machine: processor(),
        processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u32),
        kernel: sysfs::text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        elapsed_s: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        kernel_share,
        skipped: skipped.into_iter().map(|(operation, reason)| NotMeasured { operation, reason }).collect(),
        costs,
        memory,
    })
}

fn round(samples: &mut Samples) -> Result<(), MeasureError> {
    samples.begin_round(yardstick()?);
    pages::base(samples)?;
    pages::populated(samples)?;
    pages::huge(samples)?;
    pages::collapse(samples)?;
    pages::mid_sizes(samples)?;
    pages::hugetlb(samples)?;
    footprint::first_touches(samples)?;
    footprint::touches_apart(samples)?;
    footprint::huge_touches_far_apart(samples)?;
    calls::empty(samples)?;
    calls::moves(samples)?;
    fork::costs(samples)
}

fn processor() -> String {
    let info = sysfs::text("/proc/cpuinfo").unwrap_or_default();
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| name.trim() == "model name").map_or("unknown".into(), |(_, name)| name.trim().to_string())
}

//! Times page operations on this machine.
//!
//! Each round performs every operation once on fresh memory and reads the processor time of this thread, so preemption
//! does not count. The effects of other load on caches and clocks remain in the figures and appear as dispersion. Accesses to
//! memory that takes less than a millisecond are timed while nothing else runs on the core, if that pauses. Only the kernel's part of the time counts. It is measured with [`hksim_linux_probe::cpu_modes`], as in the runs that the
//! costs are applied to.

mod calls;
mod cold;
mod flush;
mod footprint;
mod fork;
mod lines;
mod pages;
mod samples;

use std::time::{Duration, Instant};

use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{YARDSTICK_BYTES, yardstick};

use crate::machine::Machine;
use crate::price::cost_of;
use crate::profile::{CoreUse, CostError, NotMeasured, Operation, Profile, VERSION};
use samples::{Samples, Sampling};

/// A system call that the measurement needs failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct MeasureError {
    what: &'static str,
    source: std::io::Error,
}

/// The machine's speed is not known.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The profile has no cost of the operation that is repeated.
    #[error(transparent)]
    Profile(#[from] CostError),
    /// Memory cannot be mapped.
    #[error("cannot map memory: {0}")]
    Memory(#[from] std::io::Error),
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
const ROUNDS_PER_SAMPLED_ROUND: u32 = 3;

/// Rounds that are performed however long they take: fewer show no dispersion.
const ROUNDS_MIN: u32 = 3;

/// The limits of a measurement. It ends at the first one reached.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds, after one for warm-up.
    pub rounds: u32,
    /// No round starts that would end after this time, by the time that the longest one took. Three are performed in any
    /// case.
    pub time_max: Duration,
    /// Times without any work, after which the host may have taken back free memory. They are not part of `time_max`.
    pub rests: &'static [Duration],
}

/// Measures this machine, but not the costs of code.
///
/// # Errors
/// Mapping memory or forking fails.
pub fn measure(effort: Effort) -> Result<Profile, MeasureError> {
    let (mut samples, mut sampled) = (Samples::by_clock(), Samples::by_sampling());
    // First of all, before this process has touched much memory.
    let began = Instant::now();
    samples.begin_round(yardstick()?);
    cold::host_backing(&mut samples, effort.rests)?;
    let began_rounds = Instant::now();
    round(&mut Samples::by_clock())?;
    let mut longest = Duration::ZERO;
    for number in 0..effort.rounds {
        let began_round = Instant::now();
        round(&mut samples)?;
        // Sampling takes time itself, so it has separate rounds.
        if let Some(sampled) = sampled.as_mut().filter(|_| number.is_multiple_of(ROUNDS_PER_SAMPLED_ROUND)) {
            sampled.set_sampling(Sampling::On);
            round(sampled)?;
            sampled.set_sampling(Sampling::Off);
        }
        longest = longest.max(began_round.elapsed());
        if number + 1 >= ROUNDS_MIN && began_rounds.elapsed() + longest > effort.time_max {
            break;
        }
    }
    let kernel_share = sampled.as_ref().and_then(Samples::kernel_share);
    let memory = Some(lines::costs(&mut samples.core)?);
    let core = samples
        .core
        .shared_share()
        .map(|shared_share| CoreUse { shared_share, alone_additions_per_cycle: samples.core.alone_from() });
    let (costs, skipped) = samples.finish(sampled.as_ref());
    let machine = Machine::here();
    Ok(Profile {
        version: VERSION,
        machine: machine.processor,
        processors: machine.processors,
        kernel: machine.kernel,
        elapsed_s: (began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        kernel_share,
        core,
        skipped: skipped.into_iter().map(|(operation, reason)| NotMeasured { operation, reason }).collect(),
        costs,
        memory,
        code: None,
    })
}

/// How much slower the machine is now than at calibration (1: equally fast), from first touches of 4 MiB. It takes about
/// 50 ms.
///
/// # Errors
/// Mapping memory fails, or the profile has no cost of a first touch.
pub fn control(profile: &Profile) -> Result<f64, ControlError> {
    let write_fault = cost_of(profile, Operation::WriteFault)?;
    let due_ns = write_fault.of_processor().median_ns * (YARDSTICK_BYTES / PAGE_BYTES) as f64;
    Ok(yardstick()?.as_nanos() as f64 / due_ns)
}

fn round(samples: &mut Samples) -> Result<(), MeasureError> {
    samples.begin_round(yardstick()?);
    pages::base(samples)?;
    pages::refaults(samples)?;
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

//! Measures the kernel's part of a replay's processor time.
//!
//! The kernel's accounting samples a process at each tick, which is too coarse for runs of a few milliseconds. Here a
//! run is sampled 4 000 times per second and repeated until there are enough samples.

use hksim_policy::PreparedPolicy;
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use hksim_engine::TouchRule;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, timed, warm_up, warm_up_by, warm_up_pool};
use hksim_timing::median_with_interval;
use serde::{Deserialize, Serialize};

use crate::calls::Counted;
use crate::error::{ChildError, ReplayError};
use crate::fork::Children;
use crate::native::{Native, open, ready};
use crate::ordered::Unobserved;
use crate::parent;
use crate::prefault::{MeasuredHeap, prefault};
use crate::probe::{ClockProbe, Meter, ModeProbe};
use crate::protocol::Report;
use crate::spec::{ReplaySpec, Run, SmallMemory, SystemProbe, WarmUp};
use crate::window::{PreparedTrace, drive};

/// One run, with the figures that it measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemRun {
    /// Processor seconds of the window in user and kernel mode, without reading the trace; 0 in a sampled run.
    pub cpu_s: f64,
    /// Samples in the kernel.
    pub kernel_samples: u64,
    /// Samples in the program.
    pub user_samples: u64,
    /// Samples in the kernel during a loop without system calls. They come from interrupts and other programs' time
    /// slices.
    pub idle_kernel_samples: u64,
    /// Samples in the loop itself.
    pub idle_user_samples: u64,
    /// Processor seconds of the last pass over the memory of the [`WarmUp`], right before the run; 0 without a warm-up
    /// or in a sampled run.
    pub warm_up_s: f64,
}

/// When to stop repeating runs.
#[derive(Clone, Copy, Debug)]
pub struct SystemEffort {
    /// The sufficient standard error, as a share of the system time.
    pub error_share: f64,
    /// Wall time after which no further run starts.
    pub time_max: Duration,
}

/// A run is excluded if its kernel samples exceed the median times this factor plus [`STALL_SAMPLES`]. If the host has
/// reclaimed memory, a single fault can cost a hundred times as much, which no cost model predicts. Chance alone does
/// not exceed this limit.
const STALL_TIMES: f64 = 2.0;
const STALL_SAMPLES: f64 = 10.0;

/// Minimum and maximum number of runs.
const RUNS_MIN: usize = 10;
const RUNS_MAX: usize = 1000;

/// Runs of one trace on one design. Every second run is sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemRuns(pub Vec<SystemRun>);

impl SystemRuns {
    fn sum(&self, of: fn(&SystemRun) -> u64) -> f64 {
        self.unstalled().map(of).sum::<u64>() as f64
    }

    /// All runs except those with far more kernel samples than the median.
    fn unstalled(&self) -> impl Iterator<Item = &SystemRun> {
        let sampled = self.0.iter().filter(|run| run.kernel_samples + run.user_samples > 0);
        let most = median(sampled.map(|run| run.kernel_samples as f64));
        let samples_max = most.map_or(f64::INFINITY, |most| STALL_TIMES * most + STALL_SAMPLES);
        self.0.iter().filter(move |run| run.kernel_samples as f64 <= samples_max)
    }

    fn timed(&self, of: fn(&SystemRun) -> f64) -> Option<f64> {
        median(self.0.iter().filter(|run| run.cpu_s > 0.0).map(of))
    }

    /// The share of the window that the kernel spends on the program's requests, and its standard error. The kernel's
    /// share of a loop without system calls is subtracted. `None` without samples.
    pub fn kernel_share(&self) -> Option<(f64, f64)> {
        let (kernel, user) = (self.sum(|run| run.kernel_samples), self.sum(|run| run.user_samples));
        let (idle_kernel, idle_user) = (self.sum(|run| run.idle_kernel_samples), self.sum(|run| run.idle_user_samples));
        if kernel + user == 0.0 || idle_user == 0.0 {
            return None;
        }
        let (share, idle) = (kernel / (kernel + user), idle_kernel / idle_user);
        // One kernel sample is added, because a few samples without one do not prove that the rate is zero.
        let variance =
            share * (1.0 - share) / (kernel + user) + (1.0 - share).powi(2) * (idle_kernel + 1.0) / idle_user.powi(2);
        Some((share - (1.0 - share) * idle, variance.sqrt()))
    }

    /// System seconds of a run: median processor time times the kernel's share. `None` without samples in the kernel.
    pub fn system_s(&self) -> Option<f64> {
        Some(self.timed(|run| run.cpu_s)? * self.kernel_share().filter(|&(share, _)| share > 0.0)?.0)
    }

    /// Relative standard error of the system time.
    pub fn error_share(&self) -> Option<f64> {
        self.kernel_share().filter(|&(share, _)| share > 0.0).map(|(share, error)| error / share)
    }

    /// Processor seconds of the warm-up at the machine's speed in the median run. Each run is compared with its own
    /// warm-up, because the speed changes from run to run. `None` without a warm-up, or if most runs could not get the
    /// memory for it.
    pub fn warm_up_s(&self) -> Option<f64> {
        let warm_ups_a_run = self.timed(|run| run.warm_up_s / run.cpu_s)?;
        Some(self.timed(|run| run.cpu_s)? * warm_ups_a_run).filter(|&seconds| seconds > 0.0)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    median_with_interval(values).map(|found| found.median)
}

/// Replays a trace, in order, on the native allocator, until the kernel's part of its processor time is known.
///
/// # Errors
/// A run fails, or the kernel does not permit sampling (`kernel.perf_event_paranoid` above 1 for users other than
/// root).
pub fn system_time(spec: &ReplaySpec, warm_up: WarmUp, effort: SystemEffort) -> Result<SystemRuns, ReplayError> {
    let spec = &parent::checked(spec)?;
    let began = Instant::now();
    let mut runs = SystemRuns::default();
    loop {
        for probe in [SystemProbe::Clock, SystemProbe::Modes] {
            let run = Run::System(warm_up, probe);
            match parent::run(spec, run)?.report {
                Report::System(found) => runs.0.push(found),
                other => return Err(parent::unexpected(run, &other)),
            }
        }
        let is_known = runs.error_share().is_some_and(|share| share <= effort.error_share);
        let is_late = began.elapsed() >= effort.time_max;
        if runs.0.len() >= RUNS_MIN && (is_known || is_late || runs.0.len() >= RUNS_MAX) {
            return Ok(runs);
        }
    }
}

/// Touches and releases the memory of the warm-up until it is warm. Returns the processor time of the last pass, or 0
/// if the hugetlb pool lacks free pages.
fn warm(up: WarmUp) -> Result<Duration, ChildError> {
    let failed = || ChildError::system("warm up");
    let mut spent = Duration::ZERO;
    if up.small_bytes > 0 {
        let granule = match up.small {
            SmallMemory::Pages | SmallMemory::Populated => Granule::Page,
            SmallMemory::Folios(bytes) => Granule::Between(bytes),
        };
        let bytes = up.small_bytes.next_multiple_of(granule.bytes());
        let touch = if up.small == SmallMemory::Populated { populate(bytes) } else { warm_up(granule, bytes) };
        spent += touch.map_err(failed())?;
    }
    if up.huge_bytes > 0 {
        spent += warm_up(Granule::Huge, up.huge_bytes).map_err(failed())?;
    }
    if up.pool_bytes > 0 {
        let pool = warm_up_pool(up.pool_bytes).map_err(failed())?;
        // If another process uses pages of the pool, the warm-up is incomplete and its time is meaningless.
        spent = if pool.is_zero() { pool } else { spent + pool };
    }
    Ok(spent)
}

/// Warms up memory by populating it, or by faults if the kernel lacks `MADV_POPULATE_WRITE`.
fn populate(bytes: u64) -> io::Result<Duration> {
    warm_up_by(bytes, || {
        let area = Area::of(Granule::Page, bytes)?;
        let (is_done, spent) = timed(|| area.advise(libc::MADV_POPULATE_WRITE));
        Ok(if is_done { spent } else { timed(|| area.write(PAGE_BYTES)).1 })
    })
}

/// Performs the run, in the child.
pub(crate) fn run(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    up: WarmUp,
    probe: SystemProbe,
) -> Result<Report, ChildError> {
    let ready = ready(&plan, trace);
    let open = || open(plan, Counted::default(), ready, touch, |_| {});
    Ok(Report::System(match probe {
        SystemProbe::Clock => {
            let (ClockProbe { spent, .. }, warm_up) = metered(trace, up, ClockProbe::default(), open)?;
            SystemRun { cpu_s: spent.as_secs_f64(), warm_up_s: warm_up.as_secs_f64(), ..SystemRun::default() }
        }
        SystemProbe::Modes => metered(trace, up, ModeProbe::open()?, open)?.0.finish(),
    }))
}

/// Warms up, and performs the trace. Returns the meter, and the processor time of the warm-up's last pass.
fn metered<M: Meter>(
    trace: &mut PreparedTrace,
    up: WarmUp,
    mut meter: M,
    open: impl FnOnce() -> Result<Native<Counted>, ChildError>,
) -> Result<(M, Duration), ChildError> {
    let children = Children::none();
    prefault(MeasuredHeap::Reservation);
    let warm_up = warm(up)?;
    meter.start();
    meter.resume();
    let heap = ManuallyDrop::new(open()?);
    meter.pause();
    let mut run = Unobserved { heap, children, meter };
    drive(trace, &mut run)?;
    Ok((run.meter, warm_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_is_the_median_times_the_share_of_all_samples() {
        let timed = |cpu_s| SystemRun { cpu_s, ..SystemRun::default() };
        let sampled = |kernel_samples, user_samples, idle_kernel_samples| SystemRun {
            kernel_samples,
            user_samples,
            idle_kernel_samples,
            idle_user_samples: 1000,
            ..SystemRun::default()
        };
        let runs = SystemRuns(vec![timed(1.0), sampled(100, 300, 0), timed(9.0), sampled(300, 100, 0), timed(2.0)]);
        assert_eq!(runs.system_s(), Some(1.0), "half of 2.0");
        let error = ((0.25f64 / 800.0) + 0.25 / 2000.0f64.powi(2)).sqrt() / 0.5;
        assert!((runs.error_share().unwrap_or(0.0) - error).abs() < 1e-12);
        // The idle loop has one kernel sample for ten of its own, so 40 of the kernel samples are not due to requests.
        let runs = SystemRuns(vec![timed(1.0), sampled(100, 400, 100)]);
        assert!((runs.system_s().unwrap_or(0.0) - (0.2 - 0.8 * 0.1)).abs() < 1e-12);
        assert_eq!(SystemRuns::default().system_s(), None);
        // The host stalls one of three runs, which is excluded.
        let runs = SystemRuns(vec![timed(1.0), sampled(20, 80, 0), sampled(51, 49, 0), sampled(20, 80, 0)]);
        assert_eq!(runs.system_s(), Some(0.2));
        let runs = SystemRuns(vec![timed(1.0), sampled(20, 80, 0), sampled(50, 50, 0), sampled(20, 80, 0)]);
        assert_eq!(runs.system_s(), Some(0.3));
        // Two of three runs took half as long as their own warm-ups; the median of the runs is 2.0.
        let run = |cpu_s, warm_up_s| SystemRun { warm_up_s, ..timed(cpu_s) };
        let runs = SystemRuns(vec![run(1.0, 2.0), run(2.0, 4.0), run(9.0, 1.0), sampled(1, 1, 0)]);
        assert_eq!(runs.warm_up_s(), Some(4.0));
        assert_eq!(SystemRuns(vec![timed(1.0)]).warm_up_s(), None, "nothing was touched");
        assert_eq!(SystemRuns(vec![timed(1.0), sampled(0, 9, 0)]).error_share(), None, "0 has no relative error");
    }
}

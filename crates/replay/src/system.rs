//! Measures how much processor time of a replay the kernel took.
//!
//! The kernel's accounting samples a process at each tick, which is too coarse for runs of a few milliseconds. Here a run
//! is sampled 4 000 times per second and repeated until there are enough samples.

use hksim_policy::PreparedPolicy;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use hksim_engine::{ForkStep, TouchRule};
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::area::{Area, Granule, thread_time, timed, warm_up, warm_up_by, warm_up_pool};
use hksim_linux_probe::cpu_modes::{CpuModes, ModeSamples, SAMPLE_PERIOD, spin};
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Event;
use serde::{Deserialize, Serialize};

use crate::calls::Counted;
use crate::error::{ChildError, ReplayError};
use crate::fork::{Children, keep_apart};
use crate::native::{Native, lock_heap, open, ready, step};
use crate::parent;
use crate::protocol::Report;
use crate::settle::{Heap, settle};
use crate::spec::{ReplaySpec, Run, SmallMemory, WarmUp, Watched};
use crate::window::{Prepared, Step, drive};

/// One run, with the figures that it was observed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemRun {
    /// Processor seconds of the window, in user and kernel, reading the trace left out; 0 in a run that was looked at.
    pub cpu_s: f64,
    /// Samples that found it in the kernel.
    pub kernel_looks: u64,
    /// Samples that found it in the program.
    pub user_looks: u64,
    /// Samples in the kernel of a loop without system calls: interrupts, and other programs' time slices.
    pub idle_kernel_looks: u64,
    /// Samples in the loop itself.
    pub idle_user_looks: u64,
    /// Processor seconds of the last of some first touches of the memory of the [`WarmUp`], right before; 0 in a run that was looked at.
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

/// Minimum time for which the loop without system calls is sampled.
const SPIN_MIN: Duration = Duration::from_millis(20);

/// A run is left out that was found in the kernel so many times as often as most, and so many times more: a host that took memory back
/// makes single faults a hundred times as dear, and nobody can price that. Chance alone does not do it.
const STALL_TIMES: f64 = 2.0;
const STALL_LOOKS: f64 = 10.0;

/// Minimum and maximum number of runs.
const RUNS_MIN: usize = 10;
const RUNS_MAX: usize = 1000;

/// Runs of one trace on one design. Every second one is sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemRuns(pub Vec<SystemRun>);

impl SystemRuns {
    fn sum(&self, of: fn(&SystemRun) -> u64) -> f64 {
        self.unstalled().map(of).sum::<u64>() as f64
    }

    /// All runs except those with far more kernel samples than most.
    fn unstalled(&self) -> impl Iterator<Item = &SystemRun> {
        let looked = self.0.iter().filter(|run| run.kernel_looks + run.user_looks > 0);
        let most = median(looked.map(|run| run.kernel_looks as f64));
        let looks_max = most.map_or(f64::INFINITY, |most| STALL_TIMES * most + STALL_LOOKS);
        self.0.iter().filter(move |run| run.kernel_looks as f64 <= looks_max)
    }

    fn timed(&self, of: fn(&SystemRun) -> f64) -> Option<f64> {
        median(self.0.iter().filter(|run| run.cpu_s > 0.0).map(of))
    }

    /// The kernel's share of the window for what was asked of it, and its standard error. What it takes of a loop that asks
    /// nothing is taken off.
    fn share(&self) -> Option<(f64, f64)> {
        let (kernel, user) = (self.sum(|run| run.kernel_looks), self.sum(|run| run.user_looks));
        let (idle_kernel, idle_user) = (self.sum(|run| run.idle_kernel_looks), self.sum(|run| run.idle_user_looks));
        if kernel + user == 0.0 || idle_user == 0.0 {
            return None;
        }
        let (share, idle) = (kernel / (kernel + user), idle_kernel / idle_user);
        // One more than was seen: a few samples without a hit do not prove that there are none.
        let variance =
            share * (1.0 - share) / (kernel + user) + (1.0 - share).powi(2) * (idle_kernel + 1.0) / idle_user.powi(2);
        Some((share - (1.0 - share) * idle, variance.sqrt()))
    }

    /// System seconds of a run: the median of processor time by the kernel's share of it. `None` where no look found it.
    pub fn system_s(&self) -> Option<f64> {
        Some(self.timed(|run| run.cpu_s)? * self.share().filter(|&(share, _)| share > 0.0)?.0)
    }

    /// Relative standard error of the system time.
    pub fn error_share(&self) -> Option<f64> {
        self.share().filter(|&(share, _)| share > 0.0).map(|(share, error)| error / share)
    }

    /// Processor seconds of the warm-up when the machine was as fast as it was in the median of the runs: each run is compared with
    /// its own warm-up, since the speed of a machine changes from one to the next. `None` where nothing was touched, or most runs could
    /// not have its memory.
    pub fn warm_up_s(&self) -> Option<f64> {
        let warm_ups_a_run = self.timed(|run| run.warm_up_s / run.cpu_s)?;
        Some(self.timed(|run| run.cpu_s)? * warm_ups_a_run).filter(|&seconds| seconds > 0.0)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Replays a trace, in order, on the native allocator, until it is known what the kernel took of its processor time.
///
/// # Errors
/// A run cannot be made; the kernel lets nobody look (`kernel.perf_event_paranoid` above 1 for one who is not root).
pub fn system_time(spec: &ReplaySpec, warm_up: WarmUp, effort: SystemEffort) -> Result<SystemRuns, ReplayError> {
    let spec = &parent::checked(spec)?;
    let began = Instant::now();
    let mut runs = SystemRuns::default();
    loop {
        for watched in [Watched::Clock, Watched::Modes] {
            let run = Run::System(warm_up, watched);
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

/// What of the processor time of a window is watched, and was found.
enum Gauge {
    /// How much it is, and since when it runs.
    Clock { spent: Duration, since: Duration },
    /// Whose it is. What was seen outside the window is forgotten: to switch off and on would cost more kernel time than many
    /// a batch. The clock is not read, since each reading is a call to the kernel, and would be found there.
    Modes { modes: CpuModes, looks: ModeSamples },
}

impl Gauge {
    fn open(watched: Watched) -> Result<Gauge, ChildError> {
        Ok(match watched {
            Watched::Clock => Gauge::Clock { spent: Duration::ZERO, since: Duration::ZERO },
            Watched::Modes => {
                let why = ChildError::system("sample processor time (kernel.perf_event_paranoid)");
                Gauge::Modes { modes: CpuModes::open().map_err(why)?, looks: ModeSamples::default() }
            }
        })
    }

    fn pause(&mut self) {
        match self {
            Gauge::Clock { spent, since } => *spent += thread_time().saturating_sub(*since),
            Gauge::Modes { modes, looks } => looks.add(modes.take()),
        }
    }

    fn resume(&mut self) {
        match self {
            Gauge::Clock { since, .. } => *since = thread_time(),
            Gauge::Modes { modes, .. } => _ = modes.take(),
        }
    }
}

/// A heap whose processor time is measured.
struct Looked {
    /// As in a measured run: never dropped.
    heap: ManuallyDrop<Native<Counted>>,
    gauge: Gauge,
    children: Children,
}

impl Step for Looked {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn batch_begins(&mut self) {
        self.gauge.resume();
    }

    fn batch_done(&mut self) {
        self.gauge.pause();
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }

    fn lock(&mut self, lock: MemoryLock) {
        let _ = lock_heap(&self.heap, lock);
    }

    fn fork(&mut self, step: ForkStep) -> Result<(), ChildError> {
        self.gauge.pause();
        // To wait for a child is no page work.
        match step {
            ForkStep::Exit(number) => self.children.exit(number),
            ForkStep::Fork(_) => {
                let mem = &self.heap.allocator().mem;
                keep_apart(mem.base().as_ptr() as u64, mem.bytes())
                    .map_err(ChildError::system("keep memory from a child"))?;
            }
        }
        self.gauge.resume();
        if let ForkStep::Fork(number) = step {
            self.children.fork(number);
        }
        Ok(())
    }
}

/// Lets a random part of the time between two looks pass: else no run is ever looked at before its first 250 us are over, and
/// a short one has most of its faults then.
fn out_of_step() {
    let random = RandomState::new().hash_one(0);
    let until = thread_time() + Duration::from_nanos(random % SAMPLE_PERIOD.as_nanos() as u64);
    while thread_time() < until {}
}

/// Touches the memory of the warm-up and gives it back, as often as warms it, and returns the processor time of the last touch; 0 where
/// the pool has not got so many pages now.
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
        // Where somebody else has the pool by now, the rest of it tells nothing.
        spent = if pool.is_zero() { pool } else { spent + pool };
    }
    Ok(spent)
}

/// Warms memory up by populating it; by faults where the kernel has no such call.
fn populate(bytes: u64) -> io::Result<Duration> {
    warm_up_by(bytes, || {
        let area = Area::of(Granule::Page, bytes)?;
        let (is_done, spent) = timed(|| area.advise(libc::MADV_POPULATE_WRITE));
        Ok(if is_done { spent } else { timed(|| area.write(PAGE_BYTES)).1 })
    })
}

/// The child's part.
pub(crate) fn run(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut Prepared,
    up: WarmUp,
    watched: Watched,
) -> Result<Report, ChildError> {
    let ready = ready(&plan, trace);
    let mut gauge = Gauge::open(watched)?;
    let children = Children::none();
    settle(Heap::Apart);
    let warm_up_s = warm(up)?.as_secs_f64();
    if let Gauge::Modes { modes, .. } = &gauge {
        modes.enable();
        out_of_step();
    }
    gauge.resume();
    let heap = ManuallyDrop::new(open(plan, Counted::default(), ready, touch, |_| {})?);
    gauge.pause();
    let mut looked = Looked { heap, gauge, children };
    drive(trace, &mut looked)?;
    Ok(Report::System(match looked.gauge {
        Gauge::Clock { spent, .. } => SystemRun { cpu_s: spent.as_secs_f64(), warm_up_s, ..SystemRun::default() },
        Gauge::Modes { mut modes, looks } => {
            modes.take();
            spin(looks.time().max(SPIN_MIN));
            let idle = modes.take();
            SystemRun {
                kernel_looks: looks.kernel,
                user_looks: looks.user,
                idle_kernel_looks: idle.kernel,
                idle_user_looks: idle.user,
                ..SystemRun::default()
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_time_is_the_median_by_the_share_of_all_looks() {
        let timed = |cpu_s| SystemRun { cpu_s, ..SystemRun::default() };
        let looked = |kernel_looks, user_looks, idle_kernel_looks| SystemRun {
            kernel_looks,
            user_looks,
            idle_kernel_looks,
            idle_user_looks: 1000,
            ..SystemRun::default()
        };
        let runs = SystemRuns(vec![timed(1.0), looked(100, 300, 0), timed(9.0), looked(300, 100, 0), timed(2.0)]);
        assert_eq!(runs.system_s(), Some(1.0), "half of 2.0");
        let error = ((0.25f64 / 800.0) + 0.25 / 2000.0f64.powi(2)).sqrt() / 0.5;
        assert!((runs.error_share().unwrap_or(0.0) - error).abs() < 1e-12);
        // Of 400 looks in the program, 40 more would be in the kernel though it asked for nothing.
        let runs = SystemRuns(vec![timed(1.0), looked(100, 400, 100)]);
        assert!((runs.system_s().unwrap_or(0.0) - (0.2 - 0.8 * 0.1)).abs() < 1e-12);
        assert_eq!(SystemRuns::default().system_s(), None);
        // A host that stalls one of three runs.
        let runs = SystemRuns(vec![timed(1.0), looked(20, 80, 0), looked(51, 49, 0), looked(20, 80, 0)]);
        assert_eq!(runs.system_s(), Some(0.2));
        let runs = SystemRuns(vec![timed(1.0), looked(20, 80, 0), looked(50, 50, 0), looked(20, 80, 0)]);
        assert_eq!(runs.system_s(), Some(0.3));
        // Two of three runs took half as long as their own warm-ups; the median of the runs is 2.0.
        let run = |cpu_s, warm_up_s| SystemRun { warm_up_s, ..timed(cpu_s) };
        let runs = SystemRuns(vec![run(1.0, 2.0), run(2.0, 4.0), run(9.0, 1.0), looked(1, 1, 0)]);
        assert_eq!(runs.warm_up_s(), Some(4.0));
        assert_eq!(SystemRuns(vec![timed(1.0)]).warm_up_s(), None, "nothing was touched");
        assert_eq!(SystemRuns(vec![timed(1.0), looked(0, 9, 0)]).error_share(), None, "0 has no error to speak of");
    }
}

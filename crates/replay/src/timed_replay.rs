//! Replays as subjects of a timing.

use hksim_timing::{Ended, Estimate, Plan, Sample, Subject, Timed, Timings, Verdict, time};
use serde::{Deserialize, Serialize};

use crate::error::ReplayError;
use crate::parent::{checked, run, run_on, unexpected};
use crate::phases::PhaseSamples;
use crate::protocol::Report;
use crate::result::Skipped;
use crate::spec::{Mode, ReplaySpec, Run};
use crate::system::SystemRuns;

/// A replay that is only timed. Each run is a fresh process.
#[derive(Clone, Debug)]
pub struct TimedReplay {
    spec: ReplaySpec,
    run: Run,
}

impl TimedReplay {
    /// A replay on the allocator that it names.
    ///
    /// # Errors
    /// The specification is invalid.
    pub fn of(spec: &ReplaySpec) -> Result<TimedReplay, ReplayError> {
        Ok(TimedReplay { spec: checked(spec)?, run: Run::Timed })
    }

    /// A replay without an allocator, and without touches: what the replay itself costs.
    ///
    /// # Errors
    /// The specification is invalid.
    pub fn harness(spec: &ReplaySpec) -> Result<TimedReplay, ReplayError> {
        Ok(TimedReplay { spec: checked(spec)?, run: Run::Harness })
    }
}

impl Subject for TimedReplay {
    type Error = ReplayError;

    fn run(&self, cpu: Option<usize>) -> Result<Sample, ReplayError> {
        match run_on(&self.spec, self.run, cpu)?.report {
            Report::Timed(timing) => Ok(timing.sample),
            other => Err(unexpected(self.run, &other)),
        }
    }
}

/// Samples whether an ordered replay runs in user mode or in the kernel, in so many runs.
///
/// # Errors
/// A run fails, or the kernel does not permit sampling (`kernel.perf_event_paranoid` above 1, for users other than
/// root).
pub fn mode_samples(spec: &ReplaySpec, runs: u32) -> Result<SystemRuns, ReplayError> {
    let spec = checked(spec)?;
    let sampled = (0..runs).map(|_| match run(&spec, Run::Sampled)?.report {
        Report::System(found) => Ok(found),
        other => Err(unexpected(Run::Sampled, &other)),
    });
    sampled.collect::<Result<_, _>>().map(SystemRuns)
}

/// Samples whether an ordered replay on a `malloc` allocates, frees, touches blocks, or does its own work, in one run.
///
/// # Errors
/// As for [`mode_samples`], or the allocator is not a `malloc`.
pub fn phase_samples(spec: &ReplaySpec) -> Result<PhaseSamples, ReplayError> {
    match run(&checked(spec)?, Run::Apart)?.report {
        Report::Apart(found) => Ok(found),
        other => Err(unexpected(Run::Apart, &other)),
    }
}

/// Processor times of the parts of a replay: the median time of all runs times shares of samples, with the samples'
/// 95 % intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Apart {
    /// Nanoseconds of an allocation or resize.
    pub ns_per_allocation: Estimate,
    /// Nanoseconds of a free; null without frees.
    pub ns_per_free: Option<Estimate>,
    /// Nanoseconds of touches, for each allocator call.
    pub touch_ns_per_call: Estimate,
    /// Nanoseconds of the replay's own work, for each allocator call.
    pub replay_ns_per_call: Estimate,
}

/// Processor times of a replay, in all timed runs. Figures that could not be measured are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Processor nanoseconds per allocator call, touches included.
    pub cpu_ns_per_call: Option<Estimate>,
    /// Processor time relative to the first allocator of a comparison, or of a second run to a first of the same
    /// allocator if there is no other.
    pub ratio_to_first: Option<Estimate>,
    /// Whether that is less or more time; null for the first, and without intervals.
    pub verdict: Option<Verdict>,
    /// Timed runs.
    pub rounds: u32,
    /// The part in user mode: the median times the share of samples. The interval is that of the samples.
    pub user_ns_per_call: Option<Estimate>,
    /// The part in the kernel.
    pub system_ns_per_call: Option<Estimate>,
    /// Allocations and frees apart, if requested.
    pub apart: Option<Apart>,
}

/// The times of one allocator.
#[derive(Debug, Default)]
pub struct TimesAlone {
    /// The times.
    pub times: Times,
    /// Why the rounds ended; `None` without rounds.
    pub ended: Option<Ended>,
    /// As [`Timings::core_shared_share`]; `None` without rounds.
    pub core_shared_share: Option<f64>,
    /// What was not measured.
    pub skipped: Vec<Skipped>,
}

/// The times of the allocator of a replay: of rounds with two runs each, or, without a plan, of `first`, a run that was
/// already made. The processor's mode is sampled in `sampled_runs` more runs.
///
/// # Errors
/// A timed run fails.
pub fn times_alone(
    spec: &ReplaySpec,
    first: Option<Sample>,
    plan: Option<&Plan>,
    sampled_runs: u32,
) -> Result<TimesAlone, ReplayError> {
    let mut alone = TimesAlone::default();
    match plan {
        None => {
            let timed = Timed::<ReplayError> { samples: Vec::from_iter(first), ratios: Vec::new(), failure: None };
            alone.times = Times::alone(&timed);
        }
        Some(plan) => {
            let mut timings = time(&[&TimedReplay::of(spec)?], plan, &mut |_| {});
            alone.times = Times { ratio_to_first: timings.same_again(), ..Times::of(&timings, 0) };
            alone.ended = Some(timings.ended);
            alone.core_shared_share = timings.core_shared_share;
            timings.subjects.pop().and_then(|subject| subject.failure).map_or(Ok(()), Err)?;
        }
    }
    let samples = match spec.mode {
        Mode::Threaded => Err("sampled in ordered replays only".to_string()),
        Mode::Ordered => mode_samples(spec, sampled_runs).map_err(|why| why.to_string()),
    };
    match samples {
        Ok(samples) => alone.times.split(&samples),
        Err(why) => alone.skipped.push(Skipped::new(MODES, why)),
    }
    Ok(alone)
}

/// The figures that samples of the processor's mode give.
pub(crate) const MODES: &str = "user_ns_per_call, system_ns_per_call";

/// Standard errors on both sides of a 95 % interval.
const ERRORS: f64 = 1.96;

impl Times {
    /// The times of one subject.
    pub fn of<E>(timings: &Timings<E>, subject: usize) -> Times {
        let timed = &timings.subjects[subject];
        Times { ratio_to_first: timed.ratio_to_first(), verdict: timings.verdict(subject), ..Times::alone(timed) }
    }

    /// The times of a subject that is not compared with another.
    pub fn alone<E>(timed: &Timed<E>) -> Times {
        Times { cpu_ns_per_call: timed.cpu_ns_per_call(), rounds: timed.rounds(), ..Times::default() }
    }

    /// Divides the time between allocations, frees, touches and the replay.
    pub fn divide(&mut self, samples: &PhaseSamples) {
        let Some(cpu_ns) = self.cpu_ns_per_call.map(|time| time.median).filter(|_| samples.total() > 0) else { return };
        let total = samples.total() as f64;
        // A part's nanoseconds, for each of so many calls.
        let part = |part: u64, of: u64| {
            let share = part as f64 / total;
            let error = ERRORS * (share * (1.0 - share) / total).sqrt();
            let ns = |share: f64| cpu_ns * share.max(0.0) * samples.calls as f64 / of as f64;
            (of > 0).then(|| Estimate {
                median: ns(share),
                low: Some(ns(share - error)),
                high: Some(ns(share + error)),
            })
        };
        self.apart = (|| {
            Some(Apart {
                ns_per_allocation: part(samples.allocate, samples.allocations)?,
                ns_per_free: part(samples.free, samples.frees),
                touch_ns_per_call: part(samples.touch, samples.calls)?,
                replay_ns_per_call: part(samples.replay, samples.calls)?,
            })
        })();
    }

    /// Divides the time between user mode and the kernel.
    pub fn split(&mut self, samples: &SystemRuns) {
        let Some((cpu_ns, (share, error))) = self.cpu_ns_per_call.map(|time| time.median).zip(samples.kernel_share())
        else {
            return;
        };
        let part = |share: f64| {
            let ns = |share: f64| cpu_ns * share.clamp(0.0, 1.0);
            Estimate {
                median: ns(share),
                low: Some(ns(share - ERRORS * error)),
                high: Some(ns(share + ERRORS * error)),
            }
        };
        self.system_ns_per_call = Some(part(share));
        self.user_ns_per_call = Some(part(1.0 - share));
    }
}

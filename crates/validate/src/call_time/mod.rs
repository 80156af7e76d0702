//! Predicted times of designs beside measured ones.
//!
//! Each design is simulated, and replayed on the allocator that a program would have, in timed rounds in random order. The
//! replay's own work, which a replay without an allocator measures, is taken away from that, because predictions do not contain
//! it.

pub mod code_costs;
mod judge;
mod replayable;

use std::path::Path;

use hksim_engine::TouchRule;
use hksim_explore::described::Described;
use hksim_explore::priced::{Priced, counted};
use hksim_policy::Policy;
use hksim_replay::compare::{self, Allocator, Code, Comparison, Found, Method, Outcome, Surroundings};
use hksim_replay::{Mode, Times};
use hksim_sim::SimConfig;
use hksim_sim::sweep::SweepProgress;
use hksim_time_model::{Time, not_calibrated};
use hksim_timing::{Arrangement, Effort, Estimate, ROUNDS_FOR_INTERVAL, Verdict};
use serde::{Deserialize, Serialize};

use crate::error::ValidateError;
use judge::{Pair, predicted_ratio, ratio_without_own, without_own};

pub use hksim_cost_model::Profile;
pub use judge::{TimeResidual, TimeVerdict};
use replayable::is_same;
pub use replayable::timeless;

/// A design whose time is to be predicted and measured.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its prediction.
    pub setup: SimConfig,
    /// The allocator of its replays.
    pub allocator: Allocator,
    /// What was changed so that a replay can time it ([`timeless`]).
    pub changed: Option<String>,
}

/// A predicted time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedTime {
    /// The time of calls and accesses.
    #[serde(flatten)]
    pub time: Time,
    /// Its ratio to that of the first design that was measured.
    pub ratio_to_first: Option<f64>,
    /// Faults, from which most of the kernel's part follows.
    pub faults: u64,
}

/// A measured time, without the replay's own work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTime {
    /// Processor nanoseconds per call, touches included.
    pub ns_per_call: Estimate,
    /// The part in user mode; null if the processor's mode cannot be sampled.
    pub user_ns_per_call: Option<Estimate>,
    /// The part in the kernel.
    pub system_ns_per_call: Option<Estimate>,
    /// The ratio to the first design: the median of the rounds. Null if the first design's calls take no longer than the
    /// replay's own work.
    pub ratio_to_first: Option<Estimate>,
    /// Whether that is less or more time; null for the first design, and without intervals.
    pub verdict: Option<Verdict>,
    /// Faults of a replay, the median of the counted runs.
    pub faults: Option<u64>,
    /// Timed runs.
    pub rounds: u32,
}

/// A design on a trace, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeRow {
    /// The design, as it was predicted and measured.
    pub policy: Policy,
    /// What was changed of the design that was asked for, because a replay cannot time it.
    pub changed: Option<String>,
    /// The verdict.
    pub verdict: TimeVerdict,
    /// Why it is skipped or failed.
    pub reason: Option<String>,
    /// The prediction.
    pub predicted: Option<PredictedTime>,
    /// The measurement.
    pub measured: Option<MeasuredTime>,
    /// Their difference by part; null if a part was not measured.
    pub residual: Option<TimeResidual>,
}

/// The designs of a trace, and how they were timed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimedTrace {
    /// The trace.
    pub trace_name: String,
    /// How the program touches its blocks.
    pub touch: TouchRule,
    /// Threads of the trace. All their calls are made, and predicted, by one.
    pub threads: u32,
    /// Timed rounds.
    pub rounds: u32,
    /// Rounds, and their A/A pair; null if no design could be measured.
    pub timing: Option<Method>,
    /// The replay's own work, which is not part of the times: that of a replay without an allocator and without touches.
    pub own_ns_per_call: Option<Estimate>,
    /// The machine; null if no design could be measured.
    pub environment: Option<Surroundings>,
    /// One row for each design.
    pub rows: Vec<TimeRow>,
}

/// The replays of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Replays<'a> {
    /// The trace, an `.hkt` file.
    pub trace: &'a Path,
    /// Its name in results.
    pub name: &'a str,
    /// Its threads.
    pub threads: u32,
    /// When the rounds end.
    pub effort: Effort,
    /// The seed of their order.
    pub seed: u64,
}

/// Predicts and measures the times of designs on a trace. The first that can be measured is the one the others are
/// compared with. A design that cannot be timed is skipped, with the reason. `ran` is called after each counted run and timed
/// round.
///
/// # Errors
/// The trace is damaged, a policy is invalid, designs have different touches, or a replay cannot start.
pub fn time_designs(
    replays: &Replays<'_>,
    candidates: &[Candidate],
    profile: &Profile,
    progress: &dyn SweepProgress,
    ran: &dyn Fn(),
) -> Result<TimedTrace, ValidateError> {
    let touch = candidates.first().map_or(TouchRule::All, |one| one.setup.touch);
    if candidates.iter().any(|one| one.setup.touch != touch) {
        return Err(ValidateError::SeveralTouches);
    }
    let predictions = predictions(replays.trace, candidates, profile, progress)?;
    let runs: Vec<Allocator> = candidates
        .iter()
        .zip(&predictions)
        .filter(|(_, prediction)| prediction.is_ok())
        .map(|(candidate, _)| candidate.allocator.clone())
        .collect();
    let Replays { trace, effort, seed, .. } = *replays;
    let plan = compare::Plan {
        trace,
        touch,
        mode: Mode::Ordered,
        effort,
        arrangement: Arrangement::InTurn,
        seed,
        is_apart: false,
    };
    let comparison = if runs.is_empty() { None } else { Some(compare::compare(&runs, &plan, ran)?) };
    let own = comparison.as_ref().and_then(|comparison| comparison.method.harness.cpu_ns_per_call);
    Ok(TimedTrace {
        trace_name: replays.name.to_string(),
        touch,
        threads: replays.threads,
        rounds: comparison.as_ref().map_or(0, |comparison| comparison.rounds),
        timing: comparison.as_ref().map(|comparison| comparison.method.clone()),
        own_ns_per_call: own,
        environment: comparison.as_ref().map(|comparison| comparison.surroundings.clone()),
        rows: rows(candidates, predictions, comparison, own),
    })
}

/// A design's prediction, or why it is not measured.
type Prediction = Result<PredictedTime, String>;

/// Predicts every design that a replay can time.
fn predictions(
    trace: &Path,
    candidates: &[Candidate],
    profile: &Profile,
    progress: &dyn SweepProgress,
) -> Result<Vec<Prediction>, ValidateError> {
    let input = replayable::on_one_thread(trace)?;
    let obstacles: Vec<Option<String>> = (0..candidates.len()).map(|at| obstacle(candidates, at)).collect();
    let known = candidates.iter().zip(&obstacles).filter(|(_, obstacle)| obstacle.is_none());
    let setups: Vec<SimConfig> = known
        .map(|(candidate, _)| SimConfig {
            counted: counted(&candidate.setup.policy, Some(profile)),
            ..candidate.setup.clone()
        })
        .collect();
    let mut reports = Policy::sweep(&input, &setups, progress, &|_, _| {})?.into_iter();
    let predicted = |obstacle: Option<String>| {
        if let Some(obstacle) = obstacle {
            return Err(obstacle);
        }
        let report = reports.next().ok_or("not simulated")?;
        let faults = report.faults;
        match Priced::new(report, Some(profile)) {
            Priced { time: Some(time), .. } => Ok(PredictedTime { time, ratio_to_first: None, faults }),
            Priced { time_skipped, .. } => Err(time_skipped.unwrap_or_default()),
        }
    };
    Ok(obstacles.into_iter().map(predicted).collect())
}

/// Why a candidate is not timed, as far as that is known before its simulation.
fn obstacle(candidates: &[Candidate], at: usize) -> Option<String> {
    let Candidate { setup, allocator, .. } = &candidates[at];
    if let Found::Missing(why) = &allocator.found {
        return Some(why.clone());
    }
    if let Some(setting) = not_calibrated(&setup.policy) {
        return Some(format!("the instructions of the allocator were not measured with {setting}"));
    }
    if allocator.own.is_some_and(|own| own.code == Code::InReplay) {
        return Some("no program can run on this policy, so its time is not predicted".to_string());
    }
    if setup.policy.startup_touch_bytes > 0 || setup.policy.prewarm_superslabs > 0 {
        let why = "it touches memory before the first call, which is predicted but not timed";
        return Some(format!("{why}; use --startup-touch 0 and --prewarm 0"));
    }
    let twin = candidates[..at].iter().position(|other| is_same(&other.setup.policy, &setup.policy))?;
    Some(format!("without waiting it is the same design as row {twin}"))
}

/// The design that the others are compared with.
struct First {
    predicted: PredictedTime,
    measured: MeasuredTime,
    /// Measured nanoseconds per call, with the replay's own work.
    cpu_ns: f64,
}

/// The rows of a trace.
fn rows(
    candidates: &[Candidate],
    predictions: Vec<Prediction>,
    comparison: Option<Comparison>,
    own: Option<Estimate>,
) -> Vec<TimeRow> {
    let mut runs = comparison.map(|comparison| comparison.rows).unwrap_or_default().into_iter();
    let mut first: Option<First> = None;
    let mut rows = Vec::new();
    for (candidate, prediction) in candidates.iter().zip(predictions) {
        let mut row = TimeRow {
            policy: candidate.setup.policy,
            changed: candidate.changed.clone(),
            verdict: TimeVerdict::Skipped,
            reason: None,
            predicted: None,
            measured: None,
            residual: None,
        };
        match prediction {
            Err(why) => row.reason = Some(why),
            // One run for each design that was predicted.
            Ok(predicted) => runs.next().into_iter().for_each(|run| judge(&mut row, &predicted, &run, own, &mut first)),
        }
        rows.push(row);
    }
    rows
}

/// Judges the run of a design that was predicted. The first design that was measured becomes the one to compare with.
fn judge(
    row: &mut TimeRow,
    predicted: &PredictedTime,
    run: &compare::Row,
    own: Option<Estimate>,
    first: &mut Option<First>,
) {
    if run.outcome == Outcome::Failed {
        row.verdict = TimeVerdict::Failed;
    }
    row.reason.clone_from(&run.reason);
    let reference = first.as_ref().map_or(&predicted.time, |first| &first.predicted.time);
    let predicted =
        PredictedTime { ratio_to_first: Some(predicted_ratio(&predicted.time, reference)), ..predicted.clone() };
    let own = own.unwrap_or(NO_WORK);
    if let Some(cpu) = run.times.cpu_ns_per_call.filter(|_| run.outcome == Outcome::Measured) {
        let first_ns = first.as_ref().map_or(cpu.median, |first| first.cpu_ns);
        let measured = measured(run, &cpu, &own, first_ns);
        let pair = Pair { predicted: &predicted, measured: &measured };
        let judged = match first {
            None => pair.judge_level(),
            Some(First { predicted, measured, .. }) => pair.judge_ratio(&Pair { predicted, measured }),
        };
        match judged {
            Some((verdict, residual)) => (row.verdict, row.residual) = (verdict, residual),
            None => row.reason = Some(not_judged(&measured)),
        }
        first.get_or_insert_with(|| First {
            predicted: predicted.clone(),
            measured: measured.clone(),
            cpu_ns: cpu.median,
        });
        row.measured = Some(measured);
    }
    row.predicted = Some(predicted);
}

/// Nothing to take away.
const NO_WORK: Estimate = Estimate { median: 0.0, low: None, high: None };

/// The times of a run without the replay's own work, which is all in user mode.
fn measured(run: &compare::Row, cpu: &Estimate, own: &Estimate, first_ns: f64) -> MeasuredTime {
    let Times { user_ns_per_call, system_ns_per_call, ratio_to_first, verdict, rounds, .. } = run.times;
    MeasuredTime {
        ns_per_call: without_own(cpu, own),
        user_ns_per_call: user_ns_per_call.map(|user| without_own(&user, own)),
        system_ns_per_call,
        ratio_to_first: ratio_to_first.and_then(|ratio| ratio_without_own(&ratio, first_ns, own)),
        verdict,
        faults: run.figures.faults.as_ref().map(|faults| faults.median),
        rounds,
    }
}

/// Why a ratio is not judged.
fn not_judged(measured: &MeasuredTime) -> String {
    match measured.ratio_to_first {
        Some(_) => format!("no interval of what was measured: it needs {ROUNDS_FOR_INTERVAL} rounds"),
        None => "the first design's calls take no longer than the replay's own work".to_string(),
    }
}

//! Compares prediction and measurement: the same trace under the same design, simulated and replayed.
//!
//! The replay's figures come from the kernel only. If they are not available, the row is skipped with the reason. If
//! they contradict each other or the prediction, the row fails.

use std::path::Path;

use hksim_cost_model::{Profile, SystemTime};
use hksim_explore::host;
use hksim_explore::priced::work;
use hksim_linux_mm::KernelConfig;
use hksim_linux_probe::cpu_modes::CpuModes;
use hksim_policy::Policy;
use hksim_replay::{Measure, Mode, ReplaySpec, Replayed};
use hksim_sim::simulate::{Marks, SimConfig, Simulated};
use hksim_sim::{Addresses, SimReport};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;
use serde::{Deserialize, Serialize};

use crate::checked::Checked;
use crate::error::ValidateError;
use crate::layout::LayoutResidual;
use crate::residual::{MarksResidual, Residual};
use crate::statistical::{self, Spread};
use crate::times;
use crate::verdict::{self, Class, Judged, Verdict};

/// One trace under one design, simulated and replayed. `P` describes the allocator, as in [`SimReport`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row<P = Policy> {
    /// The name of the trace file or the built-in workload.
    pub trace_name: String,
    /// The design.
    pub policy: P,
    /// The class of the claim.
    pub class: Class,
    /// Whether the claim holds.
    pub verdict: Verdict,
    /// Why the row was skipped or failed, or a remark if it is ok.
    pub reason: Option<String>,
    /// The simulation.
    pub predicted: Box<SimReport<P>>,
    /// The replay.
    pub measured: Box<Replayed>,
    /// Prediction minus measurement.
    pub residual: Residual,
    /// The effect of mapping addresses on the prediction, if SuperSlabs have separate mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout_residual: Option<LayoutResidual>,
    /// Figures over all runs, in the class `statistical`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spreads: Vec<Spread>,
    /// System time, if a profile was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
    /// The machine's settings that affect results.
    pub environment: hksim_replay::Environment,
}

/// Maximum replays of one row.
const TRIES_MAX: u32 = 4;

/// Simulates and replays a trace file.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or a replay cannot start.
pub fn validate<P: Checked>(trace: &Path, label: &str, setup: &SimConfig<P>) -> Result<Row<P>, ValidateError> {
    let setup = SimConfig { file: Some(label.to_string()), ..setup.clone() };
    let modelled = predict(trace, &setup, Marks::Collect)?;
    let spec = spec(trace, &setup);
    let (mut tries, mut differed) = (1, Vec::new());
    let (replayed, simulated, residual, judged) = loop {
        let moved_before = settings_moved(&setup);
        let replayed = hksim_replay::replay(&spec)?;
        let simulated = predict_again(trace, &setup, &modelled, &replayed)?;
        let marks = MarksResidual::new(&simulated.marks, &replayed);
        let residual = Residual::new(&simulated.report, &replayed, marks);
        let judged = verdict::judge(&simulated.report, &replayed, &residual);
        let moved = moved_before.or_else(|| settings_moved(&setup)).or_else(|| moved_meanwhile(&replayed));
        // A disturbed replay is repeated.
        let by_others = moved.is_none() && judged.may_be_disturbed(&replayed, &residual);
        let disturbed = judged.class == Class::Bounded || moved.is_some() || by_others;
        let judged = moved.map_or(judged, Judged::skipped);
        if tries == TRIES_MAX || !disturbed {
            break (replayed, simulated, residual, judged.after(&differed));
        }
        if by_others {
            differed.push(judged);
        }
        tries += 1;
    };
    Ok(Row {
        trace_name: label.to_string(),
        policy: setup.policy,
        class: judged.class,
        verdict: judged.verdict,
        reason: judged.reason,
        layout_residual: replayed.addresses.as_ref().map(|_| LayoutResidual::new(&modelled.report, &simulated.report)),
        spreads: Vec::new(),
        system_time: None,
        environment: replayed.environment.clone(),
        predicted: Box::new(simulated.report),
        measured: Box::new(replayed),
        residual,
    })
}

/// The prediction for the address space of a replay: at the addresses of its mappings and, if it came near the limit,
/// with its number of other mappings.
fn predict_again<P: Checked>(
    trace: &Path,
    setup: &SimConfig<P>,
    modelled: &Simulated<P>,
    replayed: &Replayed,
) -> Result<Simulated<P>, ValidateError> {
    /// The kernel refuses some calls a few mappings below the limit.
    const NEAR: u64 = 8;
    let mut setup = setup.clone();
    let elsewhere = replayed.vmas_outside_heap.unwrap_or(0);
    let vmas_max = modelled.report.vmas_peak.max(replayed.vmas_peak.unwrap_or(0)) + elsewhere;
    let is_near = vmas_max + NEAR >= setup.kernel.max_map_count;
    if is_near {
        setup.kernel.vmas_outside_heap = elsewhere;
    }
    match &replayed.addresses {
        None if !is_near => Ok(modelled.clone()),
        None => predict(trace, &setup, Marks::Collect),
        Some(given) => {
            let setup = SimConfig { addresses: Addresses::Given(given.clone()), ..setup };
            predict(trace, &setup, Marks::Collect)
        }
    }
}

/// Simulates a trace file.
fn predict<P: Checked>(trace: &Path, setup: &SimConfig<P>, marks: Marks) -> Result<Simulated<P>, ValidateError> {
    let mut source = WithProfiles::new(TraceReader::open(trace)?);
    Ok(P::simulate(&mut source, setup, marks)?)
}

/// Simulates a trace file, and replays it several times with real threads.
///
/// # Errors
/// The trace is damaged, the policy is invalid, or a replay cannot start.
pub fn validate_threads(trace: &Path, label: &str, setup: &SimConfig, runs: u32) -> Result<Row, ValidateError> {
    let setup = SimConfig { file: Some(label.to_string()), ..setup.clone() };
    let report = predict(trace, &setup, Marks::Skip)?.report;
    let spec = ReplaySpec { mode: Mode::Threaded, measure: Measure::PAGES, ..spec(trace, &setup) };
    let mut replayed = Vec::new();
    for _ in 0..runs.max(1) {
        replayed.push(hksim_replay::replay(&spec)?);
    }
    let threads = u64::from(TraceReader::open(trace)?.summary().threads);
    let spreads = statistical::spreads(&report, threads, &replayed);
    let (verdict, reason) = judge_threads(&report, &replayed, &spreads);
    replayed.sort_by_key(|run| run.faults);
    let measured = replayed.swap_remove(replayed.len() / 2);
    Ok(Row {
        trace_name: label.to_string(),
        policy: setup.policy,
        class: Class::Statistical,
        verdict,
        reason: Some(reason),
        residual: Residual::new(&report, &measured, None),
        layout_residual: None,
        spreads,
        system_time: None,
        environment: measured.environment.clone(),
        predicted: Box::new(report),
        measured: Box::new(measured),
    })
}

fn judge_threads(report: &SimReport, runs: &[Replayed], spreads: &[Spread]) -> (Verdict, String) {
    let texts = |spreads: Vec<&Spread>| spreads.iter().map(|spread| spread.text()).collect::<Vec<_>>().join("; ");
    if let Some(reason) = runs.first().and_then(|run| Policy::lacks_here(report, run)) {
        return (Verdict::Skipped, reason);
    }
    if let Some(reason) = runs.iter().find_map(verdict::unsound) {
        return (Verdict::Failed, reason);
    }
    if let Some(skipped) = runs.iter().flat_map(|run| &run.skipped).find(|skipped| skipped.figure.contains("faults")) {
        return (Verdict::Skipped, verdict::not_measured(skipped));
    }
    let outside: Vec<&Spread> = spreads.iter().filter(|spread| !spread.holds()).collect();
    match (spreads.is_empty(), outside.is_empty()) {
        (true, _) => (Verdict::Skipped, "no figure could be measured in every run".into()),
        (false, false) => (Verdict::Failed, format!("outside all {} runs: {}", runs.len(), texts(outside))),
        (false, true) => (Verdict::Ok, format!("{} runs: {}", runs.len(), texts(spreads.iter().collect()))),
    }
}

/// The replay of a row.
fn spec<P: Checked>(trace: &Path, setup: &SimConfig<P>) -> ReplaySpec {
    let spec = ReplaySpec::ordered(trace, setup.policy.target(), setup.touch);
    ReplaySpec { memory_policy: setup.memory_policy, forks: setup.forks.clone(), ..spec }
}

/// Judges a row's system time with separate runs.
///
/// # Errors
/// A run cannot start.
pub fn judge_system_time(
    trace: &Path,
    setup: &SimConfig,
    row: &mut Row,
    profile: &Profile,
) -> Result<(), ValidateError> {
    let predicted = SystemTime::of(&work(&row.predicted), profile);
    row.system_time = Some(if row.verdict == Verdict::Skipped || predicted.price.is_none() {
        predicted
    } else if let Err(why) = CpuModes::open() {
        predicted.not_measured(format!(
            "cannot sample processor time: {why} (run as root, or set kernel.perf_event_paranoid to 1 or less)"
        ))
    } else {
        let warm_up = times::warm_up(&row.predicted);
        let runs = hksim_replay::system_time(&spec(trace, setup), warm_up, times::EFFORT)?;
        times::beside(predicted, &runs, warm_up, profile)
    });
    Ok(())
}

/// Like [`settings_moved`], for changes during the replay.
fn moved_meanwhile(replayed: &Replayed) -> Option<String> {
    let marks = replayed.marks_modes_changed.filter(|&marks| marks > 0)?;
    Some(format!(
        "this machine's huge-page modes or limits changed during the replay: they differ from the start at {marks} of {} points",
        replayed.marks.len()
    ))
}

/// The reason not to judge a difference, if modes or the hugetlb pool changed after the prediction. They are settings
/// of the whole machine, so another process can change them.
fn settings_moved<P: Checked>(setup: &SimConfig<P>) -> Option<String> {
    let (before, mut now) = (&setup.kernel, host::kernel_config().ok()?);
    // khugepaged's activity is counted separately.
    now.khugepaged = before.khugepaged;
    if !setup.policy.uses_pool() {
        now.hugetlb_pool_pages = before.hugetlb_pool_pages;
    }
    if now == *before {
        return None;
    }
    let described = |kernel: &KernelConfig| {
        let pool = kernel.hugetlb_pool_pages.map_or("unlimited".to_string(), |pages| pages.to_string());
        format!("THP {}, {pool} free pages in the hugetlb pool", kernel.thp.global.word())
    };
    let (before, now) = (described(before), described(&now));
    Some(format!("this machine's settings changed: {before} at the prediction, {now} afterwards"))
}

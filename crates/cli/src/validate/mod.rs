//! Prediction beside measurement: the same trace under the same design, simulated and replayed.
//!
//! The replay's figures come from the kernel alone. Where they cannot be had the row is skipped with the reason; where
//! they contradict themselves, or the prediction, it has failed.

mod layout;
mod residual;
mod statistical;
mod verdict;

use std::path::Path;

use hksim_cost_model::Profile;
use hksim_linux_mm::KernelConfig;
use hksim_linux_probe::cpu_modes::CpuModes;
use hksim_policy::Policy;
use hksim_policy::vocabulary::Huge;
use hksim_replay::{Measure, Mode, ReplaySpec, Replayed, Target};
use hksim_sim::simulate::{Marks, SimConfig, Simulated, simulate};
use hksim_sim::{Addresses, SimReport};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use serde::Serialize;

pub use layout::LayoutResidual;
pub use residual::{MarksResidual, Residual};
pub use statistical::Spread;
pub use verdict::{Class, Judged, Verdict};

use crate::flags::table::thp_word;
use crate::host;
use crate::output::stamp::Stamp;
use crate::system_time::{self, SystemTime};

/// One trace under one design, both ways.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The trace's file name, or that of a built-in workload.
    pub trace: String,
    /// The design.
    pub policy: Policy,
    /// What is claimed.
    pub class: Class,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why it was skipped or has failed; what to know where it is ok.
    pub reason: Option<String>,
    /// The simulation.
    pub predicted: Box<SimReport>,
    /// The replay.
    pub measured: Box<Replayed>,
    /// Prediction minus measurement.
    pub residual: Residual,
    /// What the addresses of maps do to the prediction, where SuperSlabs have maps of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout_residual: Option<LayoutResidual>,
    /// Figures over all runs, in class statistical.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spreads: Vec<Spread>,
    /// System time, where a profile of costs was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
    /// What moves results on this machine.
    pub environment: hksim_replay::Environment,
}

/// The result of a validation.
#[derive(Debug, Serialize)]
pub struct Validation {
    /// The form of the result, and what made it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// failed > ok > skipped over all rows.
    pub verdict: Verdict,
    /// One trace under one design a row.
    pub rows: Vec<Row>,
}

impl Validation {
    /// Sums rows up.
    pub fn new(rows: Vec<Row>) -> Validation {
        let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Skipped);
        Validation { stamp: Stamp::HERE, verdict, rows }
    }
}

/// Replays of one row at the most.
const TRIES_MAX: u32 = 4;

/// Simulates and replays a trace file.
///
/// # Errors
/// Damaged traces, impossible designs, and replays that cannot be made at all.
pub fn validate(trace: &Path, label: &str, setup: &SimConfig) -> anyhow::Result<Row> {
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
        // What was disturbed is measured again.
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
        trace: label.to_string(),
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

/// The prediction for the address space that a replay had: the addresses of its maps, and how many other mappings it had
/// where their limit is near.
fn predict_again(
    trace: &Path,
    setup: &SimConfig,
    modelled: &Simulated,
    replayed: &Replayed,
) -> anyhow::Result<Simulated> {
    /// The kernel refuses some calls a few mappings before the limit.
    const NEAR: u64 = 8;
    let mut setup = setup.clone();
    let elsewhere = replayed.vmas_elsewhere.unwrap_or(0);
    let vmas_max = modelled.report.vmas_peak.max(replayed.vmas_peak.unwrap_or(0)) + elsewhere;
    let is_near = vmas_max + NEAR >= setup.kernel.max_map_count;
    if is_near {
        setup.kernel.vmas_elsewhere = elsewhere;
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
fn predict(trace: &Path, setup: &SimConfig, marks: Marks) -> anyhow::Result<Simulated> {
    let mut source = WithProfiles::new(TraceReader::open(trace)?);
    Ok(simulate(&mut source, setup, marks, &|_| {})?)
}

/// Simulates a trace file, and replays it so many times with real threads.
///
/// # Errors
/// Damaged traces, impossible designs, and replays that cannot be made at all.
pub fn validate_threads(trace: &Path, label: &str, setup: &SimConfig, runs: u32) -> anyhow::Result<Row> {
    let setup = SimConfig { file: Some(label.to_string()), ..setup.clone() };
    let report = predict(trace, &setup, Marks::Skip)?.report;
    let measure = Measure { pages: true, time: false };
    let spec = ReplaySpec { mode: Mode::Threaded, measure, ..spec(trace, &setup) };
    let mut replayed = Vec::new();
    for _ in 0..runs.max(1) {
        replayed.push(hksim_replay::replay(&spec)?);
    }
    let spreads = statistical::spreads(&report, &replayed);
    let (verdict, reason) = judge_threads(&report, &replayed, &spreads);
    replayed.sort_by_key(|run| run.faults);
    let measured = replayed.swap_remove(replayed.len() / 2);
    Ok(Row {
        trace: label.to_string(),
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
    if let Some(reason) = runs.first().and_then(|run| verdict::impossible_here(report, run)) {
        return (Verdict::Skipped, reason);
    }
    if let Some(reason) = runs.iter().find_map(verdict::unsound) {
        return (Verdict::Failed, reason);
    }
    let outside: Vec<&Spread> = spreads.iter().filter(|spread| !spread.holds()).collect();
    match (spreads.is_empty(), outside.is_empty()) {
        (true, _) => (Verdict::Skipped, "no figure could be measured in every run".into()),
        (false, false) => (Verdict::Failed, format!("outside all {} runs: {}", runs.len(), texts(outside))),
        (false, true) => (Verdict::Ok, format!("{} runs: {}", runs.len(), texts(spreads.iter().collect()))),
    }
}

/// The replay of a row.
fn spec(trace: &Path, setup: &SimConfig) -> ReplaySpec {
    ReplaySpec {
        trace: trace.to_path_buf(),
        on: Target::Native(setup.policy),
        touch: setup.touch,
        memory_policy: setup.memory_policy,
        mode: Mode::Ordered,
        measure: Measure::default(),
        stop_at: None,
        forks: setup.forks.clone(),
    }
}

/// Judges a row's system time, by runs of their own.
///
/// # Errors
/// A run cannot be made.
pub fn judge_system_time(trace: &Path, setup: &SimConfig, row: &mut Row, profile: &Profile) -> anyhow::Result<()> {
    let predicted = SystemTime::predicted(&row.predicted, profile);
    row.system_time = Some(if row.verdict == Verdict::Skipped || predicted.price.is_none() {
        predicted
    } else if let Err(why) = CpuModes::open() {
        predicted.not_measured(format!(
            "cannot look at processor time: {why} (run it as root, or with kernel.perf_event_paranoid at 1 or less)"
        ))
    } else {
        let warm_up = system_time::warm_up(&row.predicted);
        let runs = hksim_replay::system_time(&spec(trace, setup), warm_up, system_time::EFFORT)?;
        predicted.beside(&runs, warm_up, profile)
    });
    Ok(())
}

/// The same as [`settings_moved`], while the replay ran.
fn moved_meanwhile(replayed: &Replayed) -> Option<String> {
    let marks = replayed.modes_moved.filter(|&marks| marks > 0)?;
    Some(format!(
        "somebody changed this machine's huge-page modes or limits while the replay ran: at {marks} of {} points they were not those of its start",
        replayed.marks.len()
    ))
}

/// Modes and the hugetlb pool belong to the whole machine: where they are not what the prediction saw, somebody changed them,
/// and a difference says nothing.
fn settings_moved(setup: &SimConfig) -> Option<String> {
    let (before, mut now) = (&setup.kernel, host::kernel_config().ok()?);
    // What it does is counted.
    now.khugepaged = before.khugepaged;
    if !matches!(setup.policy.huge, Huge::Hugetlb | Huge::HugetlbPlain) {
        now.hugetlb_pool = before.hugetlb_pool;
    }
    if now == *before {
        return None;
    }
    let told = |kernel: &KernelConfig| {
        let pool = kernel.hugetlb_pool.map_or("any number of".to_string(), |pages| pages.to_string());
        format!("THP {}, {pool} free pages in the hugetlb pool", thp_word(kernel.thp.global))
    };
    let (before, now) = (told(before), told(&now));
    Some(format!(
        "somebody changed this machine's settings meanwhile: {before} when this was predicted, {now} afterwards"
    ))
}

//! The result of `advise --on`: a choice among allocators that exist, by replays.

use std::path::PathBuf;

use hksim_explore::question::{Limit, Question};
use hksim_replay::Environment;
use hksim_replay::compare::Outcome;
use hksim_sim::report::TraceLabel;
use hksim_timing::Estimate;
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;
use crate::trial::TrialReport;

/// An allocator with settings, under a huge-page mode. Ratios are to the present allocator: weighted geometric means
/// over the traces, below 1 if less. Figures that were not measured are null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The allocator, as `--allocators` names it.
    pub allocator: String,
    /// The huge-page mode, as a flag: `thp=never`; null for the machine's mode.
    pub setting: Option<String>,
    /// The library; null for the C library.
    pub library: Option<PathBuf>,
    /// Its version, if it tells one.
    pub version: Option<String>,
    /// Whether it was measured.
    pub outcome: Outcome,
    /// Why there are no figures.
    pub reason: Option<String>,
    /// Changes from the present allocator: another library, each setting and the huge-page mode count one.
    pub changes: u32,
    /// The stage in which it was timed last, from 1; 0 if it was not. Later stages add rounds.
    pub stage: u32,
    /// Processor time per allocator call.
    pub ratio_to_present: Option<Estimate>,
    /// Peak resident bytes.
    pub rss_ratio: Option<f64>,
    /// Resident bytes at the end.
    pub rss_end_ratio: Option<f64>,
    /// Whether it meets all limits on all traces.
    pub is_within_limits: bool,
    /// Whether no other row within the limits is better in one of the three figures and as good in the others.
    pub is_on_front: bool,
    /// Its figures on each trace.
    pub traces: Vec<OnTrace>,
}

/// A row's figures on one trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OnTrace {
    /// Processor nanoseconds per allocator call, touches included.
    pub cpu_ns_per_call: Option<Estimate>,
    /// Processor seconds of a replay.
    pub cpu_s: Option<Estimate>,
    /// Processor time relative to the present allocator: the median of the rounds' ratios.
    pub ratio_to_present: Option<Estimate>,
    /// Processor seconds by which a process takes longer to start and to end than on the present allocator: loading and
    /// initialising the library, ending it, and giving memory back.
    #[serde(default)]
    pub start_end_s_change: Option<Estimate>,
    /// Timed rounds.
    pub rounds: u32,
    /// Peak resident bytes: their growth since the first call, and anonymous bytes that the allocator took before it more
    /// than the present one.
    pub rss_bytes_peak: Option<u64>,
    /// Resident bytes at the end, likewise.
    pub rss_bytes_end: Option<u64>,
    /// Minor faults.
    pub faults: Option<u64>,
}

/// A stage of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Rows that were timed, the present allocator included.
    pub rows: u32,
    /// Timed rounds on each trace, at most.
    pub rounds_max: u32,
}

/// What came of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The choice is better than the present allocator.
    Change,
    /// No row is better than the present allocator by more than the error.
    NothingToChange,
    /// No row meets the limits.
    NoneWithinLimits,
}

/// A trace that was left out of the choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The trace.
    pub trace: String,
    /// The row of the last stage chosen on the other traces; null if none meets the limits there.
    pub chosen: Option<usize>,
    /// Its goal on this trace divided by that of the best row of the last stage that meets the limits here, minus 1; 0 for
    /// a tie.
    pub regret: Option<f64>,
    /// Its goal on this trace, relative to the present allocator.
    pub ratio_to_present: Option<f64>,
    /// Limits that it breaks on this trace.
    pub limits_broken: Vec<String>,
}

/// The choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// All rows that were tried. The first is the present allocator.
    pub rows: Vec<Row>,
    /// The row that was chosen; null if none meets the limits.
    pub choice: Option<usize>,
    /// Whether it is worth a change.
    pub verdict: Verdict,
    /// Other rows whose goal differs from the choice's by no more than the error.
    pub tied: Vec<usize>,
    /// The time of the present allocator relative to itself in all rounds, by trace: the method's own error.
    pub same_again: Vec<Option<Estimate>>,
    /// The share of looks, one before each run, that found other work on the processor's core: beside it, times are up to three
    /// times as long. 0 also if it never paused; null without runs, and if nothing shows it on this processor.
    #[serde(default)]
    pub core_shared_share: Option<f64>,
    /// The stages of the search.
    pub stages: Vec<Stage>,
    /// Each trace, held out. Empty if there is only one.
    pub held_out: Vec<HeldOut>,
    /// The answer as sentences.
    pub text: Vec<String>,
    /// How to run a program on the choice: assignments of environment variables, `LD_PRELOAD` among them; empty for
    /// the present allocator.
    pub apply: Vec<String>,
}

/// The choice with its inputs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChoiceReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The traces.
    pub traces: Vec<TraceLabel>,
    /// What was asked.
    pub question: Question,
    /// The limits, relative to the present allocator.
    pub limits: Vec<Limit>,
    /// The seed of the order of runs.
    pub seed: u64,
    /// The machine at the start, and modes that changed until the end.
    pub environment: Environment,
    /// The choice.
    #[serde(flatten)]
    pub choice: Choice,
    /// The real program on the present allocator and on the choice, if that was requested, with what the choice promised.
    pub trial: Option<TrialReport>,
}

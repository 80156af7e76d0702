//! The results of `replay` and `compare`.

use std::path::PathBuf;

use hksim_designs::Label;
use hksim_linux_mm::LimitOutcome;
use hksim_policy::Policy;
use hksim_replay::compare::{Method, Row, Surroundings};
use hksim_replay::{LimitedReplay, Mode, Replayed, Times};
use hksim_sim::report::{TouchLabel, TraceLabel};
use hksim_timing::{Ended, Estimate};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// The replay with its measurements.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The trace.
    pub trace: TraceLabel,
    /// The allocator, as on the command line.
    pub allocator: String,
    /// The preloaded library.
    pub library: Option<PathBuf>,
    /// On one thread, or on those of the trace.
    pub mode: Mode,
    /// The policy, if the allocator has one.
    pub policy: Option<Policy>,
    /// The design with its settings, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub design: Option<Label>,
    /// How the program touches its blocks.
    pub touch: TouchLabel,
    /// The processor times.
    #[serde(flatten)]
    pub times: Times,
    /// Why the timed rounds ended; null for a single run.
    pub ended: Option<Ended>,
    /// As in a comparison; null for a single run.
    pub core_shared_share: Option<f64>,
    /// The measurements.
    #[serde(flatten)]
    pub replayed: Replayed,
}

/// A replay under the limit of a real memory control group. Only its heap is charged to the group.
#[derive(Clone, Debug, Serialize)]
pub struct LimitedReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The trace.
    pub trace: TraceLabel,
    /// The allocator, as on the command line.
    pub allocator: String,
    /// The limit.
    pub limit_bytes: u64,
    /// Whether it survived; null if skipped.
    pub outcome: Option<LimitOutcome>,
    /// Number of the event, from 1, in which it was killed.
    pub event: Option<u64>,
    /// Why it was not replayed.
    pub skipped: Option<String>,
}

impl LimitedReport {
    /// The report of a replay.
    pub fn of(
        trace: TraceLabel,
        allocator: String,
        limit_bytes: u64,
        replayed: Result<LimitedReplay, String>,
    ) -> LimitedReport {
        let (outcome, event, skipped) = match replayed {
            Ok(LimitedReplay::Survived) => (Some(LimitOutcome::Survives), None, None),
            Ok(LimitedReplay::Killed { event }) => (Some(LimitOutcome::Killed), Some(event), None),
            Err(reason) => (None, None, Some(reason)),
        };
        LimitedReport { stamp: Stamp::here(), trace, allocator, limit_bytes, outcome, event, skipped }
    }
}

/// The comparison with its figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The trace.
    pub trace: TraceLabel,
    /// Events of the trace.
    pub events: u64,
    /// How the program touches its blocks.
    pub touch: TouchLabel,
    /// On one thread, or on those of the trace.
    pub mode: Mode,
    /// Timed rounds.
    pub runs: u32,
    /// Rounds before them.
    pub warm_up_runs: u32,
    /// Runs of each allocator in which pages are counted.
    pub counted_runs: u32,
    /// How times were measured, and how exactly.
    pub timing: Method,
    /// The machine.
    pub environment: Surroundings,
    /// One row for each allocator.
    pub rows: Vec<Row>,
}

/// Nanoseconds per call as text: `23.4 +-0.2`, where `0.2` is half the interval, if there is one.
pub fn nanoseconds(time: &Estimate) -> String {
    time.half_width().map_or(format!("{:.1}", time.median), |half| format!("{:.1} +-{half:.1}", time.median))
}

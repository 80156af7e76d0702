//! The results of `replay` and `compare`.

use std::path::PathBuf;

use hksim_policy::Policy;
use hksim_replay::compare::{Row, Surroundings};
use hksim_replay::{Mode, Replayed};
use hksim_sim::report::{TouchLabel, TraceLabel};
use serde::Serialize;

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
    /// How the program touches its blocks.
    pub touch: TouchLabel,
    /// The measurements.
    #[serde(flatten)]
    pub replayed: Replayed,
}

/// The comparison with its figures.
#[derive(Clone, Debug, Serialize)]
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
    /// Counted rounds.
    pub runs: u32,
    /// Rounds before them.
    pub warm_up_runs: u32,
    /// The machine.
    pub environment: Surroundings,
    /// One row for each allocator.
    pub rows: Vec<Row>,
}

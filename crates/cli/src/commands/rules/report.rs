//! The result of a script.

use hksim_conformance::{ArenaState, CallResult};
use hksim_results::Stamp;
use serde::Serialize;

/// One operation, predicted and executed.
#[derive(Debug, Serialize)]
pub struct Line {
    /// As in the script.
    pub op: String,
    /// The model's figures.
    pub predicted: CallResult,
    /// The kernel's figures; null if the script did not run.
    pub measured: Option<CallResult>,
}

/// The result of a script.
#[derive(Debug, Serialize)]
pub struct ScriptReport {
    /// The schema version, and the program that wrote the result.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The script, as it was read.
    pub script: String,
    /// `equal`, `differs`, `skipped` or `predicted`.
    pub verdict: &'static str,
    /// The difference, or why the script was skipped.
    pub reason: Option<String>,
    /// One row per operation.
    pub ops: Vec<Line>,
    /// The model's state at the end.
    pub predicted: ArenaState,
    /// The kernel's state at the end.
    pub measured: Option<ArenaState>,
}

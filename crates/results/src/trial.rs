//! The result of `trial`.

use std::path::PathBuf;

use hksim_replay::Environment;
use hksim_trial::Trial;
use serde::Serialize;

use crate::stamp::Stamp;

/// The trial with its figures.
#[derive(Clone, Debug, Serialize)]
pub struct TrialReport {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Where it ran.
    pub directory: Option<PathBuf>,
    /// Its standard input; null if that was empty.
    pub input: Option<PathBuf>,
    /// Whether times are those of a server's load.
    pub is_server: bool,
    /// The machine at the start, and modes that changed until the end.
    pub environment: Environment,
    /// The rows, and how they were timed.
    #[serde(flatten)]
    pub trial: Trial,
}

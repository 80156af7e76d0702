//! The part of a memory recording's label that reports show.

use serde::Deserialize;

/// A memory recording in a row of a result.
#[derive(Clone, Debug, Deserialize)]
pub struct Recording {
    /// Its file.
    pub file: String,
    /// Events that the recorder lost.
    pub lost_events: u64,
    /// Recorded faults in modelled memory.
    pub traps_recorded: u64,
    /// Recordings of programs that other processes of the same run executed.
    #[serde(default)]
    pub programs_apart: Option<u64>,
}

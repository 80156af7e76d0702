//! What a prediction says about the limit of a memory control group.

use serde::{Deserialize, Serialize};

use super::charge::GroupPressure;

/// Whether a program survives its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOutcome {
    /// Every request was met.
    Survives,
    /// The kernel kills a process of the group.
    Killed,
    /// One or the other: it depends on writes that a recording does not have.
    Unknown,
}

/// A program under the limit of a memory control group.
///
/// All other figures of a program that is killed are those that it would have if the limit was lifted at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// The limit.
    pub limit_bytes: u64,
    /// Whether it survives.
    pub outcome: LimitOutcome,
    /// Number of the fatal event, from 1: an event of the trace, or an operation of the recording.
    pub event: Option<u64>,
    /// Its time since the start, in nanoseconds.
    pub moment_ns: Option<u64>,
    /// What the fatal event requested, in words.
    pub by: Option<String>,
    /// The least limit that the program survives, and with it all larger ones that were tried; `None` if it was not
    /// searched. The same under every limit.
    pub least_limit_bytes: Option<u64>,
    /// What the group met.
    #[serde(flatten)]
    pub pressure: GroupPressure,
}

impl MemoryLimit {
    /// The result of a run that met this.
    pub fn of(limit_bytes: u64, pressure: GroupPressure) -> Self {
        let outcome = if pressure.out_of_memory.is_some() { LimitOutcome::Killed } else { LimitOutcome::Survives };
        Self { limit_bytes, outcome, event: None, moment_ns: None, by: None, least_limit_bytes: None, pressure }
    }

    /// Whether the program survives for certain.
    pub fn survives(&self) -> bool {
        self.outcome == LimitOutcome::Survives
    }
}

//! The results of `validate`.

use hksim_policy::Policy;
use hksim_validate::call_time::TimedTrace;
use hksim_validate::{Row, Verdict, memory};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// Traces under allocators, which `P` describes, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Validation<P = Policy> {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The verdict over all rows: failed > ok > skipped.
    pub verdict: Verdict,
    /// One row per trace and design.
    pub rows: Vec<Row<P>>,
}

/// Memory recordings under settings, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryValidation {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The verdict over all rows: failed > ok > skipped.
    pub verdict: Verdict,
    /// One row per recording and setting.
    pub rows: Vec<memory::Row>,
}

/// Times of designs on traces, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeValidation {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The designs of each trace.
    pub timed_traces: Vec<TimedTrace>,
}

impl<P> Validation<P> {
    /// Summarises rows.
    pub fn new(rows: Vec<Row<P>>) -> Validation<P> {
        let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Skipped);
        Validation { stamp: Stamp::here(), verdict, rows }
    }
}

impl MemoryValidation {
    /// Summarises rows.
    pub fn new(rows: Vec<memory::Row>) -> MemoryValidation {
        let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Skipped);
        MemoryValidation { stamp: Stamp::here(), verdict, rows }
    }
}

//! The results of `validate`.

use hksim_validate::{Row, Verdict, memory};
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// Traces under designs, predicted and measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Validation {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The verdict over all rows: failed > ok > skipped.
    pub verdict: Verdict,
    /// One row per trace and design.
    pub rows: Vec<Row>,
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

impl Validation {
    /// Summarises rows.
    pub fn new(rows: Vec<Row>) -> Validation {
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

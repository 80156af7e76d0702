//! The results of `sim`.

use hksim_explore::priced::Priced;
use hksim_memory_sim::MemoryRow;
use hksim_policy::Policy;
use serde::{Deserialize, Serialize};

use crate::layouts::Layouts;
use crate::site_installs::SiteInstalls;
use crate::stamp::Stamp;

/// An allocator, which `P` describes, on a trace, with its range over other address spaces if addresses matter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SimResult<P = Policy> {
    /// The prediction.
    #[serde(flatten)]
    pub priced: Priced<P>,
    /// The range over other address spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layouts: Option<Layouts>,
}

/// A memory recording under one setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemorySimResult {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The prediction.
    #[serde(flatten)]
    pub row: MemoryRow,
}

/// Memory recordings under many settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemorySweepResult {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// One row per recording and setting.
    pub rows: Vec<MemoryRow>,
    /// Rows on the Pareto front of traps and peak resident bytes, per recording; of all allocators per trace.
    pub pareto: Vec<usize>,
    /// Installs of explained replays by call site of their trace, if asked for: one for each allocator and THP mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_site: Vec<SiteInstalls>,
}

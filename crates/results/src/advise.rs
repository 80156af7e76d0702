//! The result of `advise`.

use hksim_explore::advise::Advice;
use hksim_explore::knobs::Setting;
use hksim_explore::question::Question;
use hksim_sim::report::TraceLabel;
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// How the space was searched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    /// Number of designs in the space; null if it does not fit into 64 bits.
    pub points: Option<u64>,
    /// Maximum number of designs to simulate.
    pub tries: u32,
    /// The seed.
    pub seed: u64,
}

/// The choice of a design.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advised {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The traces.
    pub traces: Vec<TraceLabel>,
    /// What was asked.
    pub question: Question,
    /// How the space was searched.
    pub search: Search,
    /// The advice.
    #[serde(flatten)]
    pub advice: Advice,
    /// Settings of other allocators that come closest to the winner.
    pub settings: Vec<Setting>,
    /// Settings that are not offered because others exclude them, as sentences.
    #[serde(default)]
    pub settings_refused: Vec<String>,
}

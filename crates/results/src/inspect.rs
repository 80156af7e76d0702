//! The result of `inspect`.

use hksim_inspect::Inspection;
use serde::{Deserialize, Serialize};

use crate::stamp::Stamp;

/// What memory a process has, once or twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InspectResult {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// What was found; with `--wait`, the second time.
    #[serde(flatten)]
    pub inspection: Inspection,
    /// What was found first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// An earlier look at the same process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Before {
    /// Time between the two, in seconds.
    pub waited_s: f64,
    /// What was found.
    #[serde(flatten)]
    pub inspection: Box<Inspection>,
}

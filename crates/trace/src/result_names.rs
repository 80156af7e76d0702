//! The names that results use for fields that trace files store under older names. The names in files do not change, so
//! that every version of hksim can read them.

use crate::header::{Quality, Watched};
use serde::Serialize;

/// Serialises [`Quality`] for a result, with all counters, including those that are 0. For use with `serialize_with`.
#[derive(Serialize)]
#[serde(remote = "Quality")]
pub struct QualityNames {
    unknown_frees: u64,
    #[serde(rename = "reordered_events")]
    parked: u64,
    #[serde(rename = "frees_inserted")]
    reuse_repaired: u64,
    #[serde(rename = "unknown_uses_dropped")]
    uses_dropped: u64,
    reallocs_to_zero_kept: u64,
    events_lost: u64,
    #[serde(rename = "call_sites_lost")]
    sites_lost: u64,
    programs_unrecorded: u64,
    processes_outliving: u64,
    stopped_ns: u64,
    nested_calls: u64,
    unfinished_calls: u64,
    addresses_guessed: u64,
    misnamed_calls: u64,
    #[serde(rename = "unrecognised_lines")]
    foreign_lines: u64,
    other_process_events: u64,
    #[serde(with = "WatchedNames")]
    watched: Watched,
}

#[derive(Serialize)]
#[serde(remote = "Watched")]
struct WatchedNames {
    objects: u64,
    touches: u64,
    touches_untimed: u64,
    faults_lost: u64,
    #[serde(rename = "unwatched_objects")]
    turned_down: u64,
}

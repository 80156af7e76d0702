//! Rows of memory recordings: simulates them under settings of the kernel.

use std::path::Path;

use hksim_cost_model::Profile;
use hksim_explore::digest::Digest;
use hksim_memory_sim::{Detail, MemoryRow, Setting, predict};
use hksim_memory_trace::Reader;
use serde_json::json;

use crate::checksum::checksum;
use crate::consumers::{Consumer, of_recording};
use crate::error::BudgetError;
use crate::row::Figures;

/// A recording under a setting.
pub(crate) struct RecordedRow {
    pub(crate) checksum: Option<String>,
    pub(crate) inputs: Digest,
    pub(crate) figures: Figures,
    pub(crate) consumers: Vec<Consumer>,
}

/// Simulates a recording under each setting.
pub(crate) fn recorded(
    path: &Path,
    settings: &[Setting],
    profile: Option<&Profile>,
) -> Result<Vec<RecordedRow>, BudgetError> {
    let refused = |why: &str| BudgetError::File { file: path.to_path_buf(), why: why.to_string() };
    let has_stacks = Reader::open(path)?.header().stack_depth.is_some();
    let checksum = Some(checksum(path).map_err(|why| refused(&why.to_string()))?);
    let rows = predict(path, settings, has_stacks, Detail::Figures)?.rows;
    if rows.iter().any(|row| !row.recording.complete) {
        return Err(refused("the recording is incomplete, so a budget cannot be checked with it; record it again"));
    }
    let row = |row: MemoryRow| {
        let row = row.priced(profile);
        let prediction = &row.prediction;
        let limit = prediction.memory_limit.as_ref().filter(|limit| !limit.survives());
        // Of a range, the upper end has to be within the limits.
        let most = prediction.at_most();
        RecordedRow {
            checksum: checksum.clone(),
            inputs: Digest::of(&json!({"setting": prediction.setting, "addresses": row.addresses, "profile": profile})),
            figures: Figures {
                installs: Some(most.installs),
                faults: Some(most.faults),
                traps: Some(most.traps),
                rss_bytes_peak: Some(most.rss_bytes_peak),
                rss_bytes_end: Some(most.rss_bytes_end),
                killed_at_limit_bytes: limit.map(|limit| limit.limit_bytes),
                vmas_peak: Some(prediction.vmas_peak),
                system_time: row.system_time.as_ref().and_then(|time| time.price),
                ..Figures::default()
            },
            consumers: row.sites.as_deref().map(of_recording).unwrap_or_default(),
        }
    };
    Ok(rows.into_iter().map(row).collect())
}

//! Predictions of memory recordings, with notes about them.

use std::path::Path;

use anyhow::Result;
use hksim_memory_sim::{Detail, MemoryRow, Setting};

use super::settings::{By, NamedSetting};
use crate::output::warn;

/// Simulates a recording under each setting; with `by`, also what the memory of each call site costs. Prints notes about
/// what the recording lacks.
///
/// # Errors
/// The recording cannot be read.
pub fn predict(path: &Path, settings: &[NamedSetting], by: Option<By>, detail: Detail) -> Result<Vec<MemoryRow>> {
    let plain: Vec<Setting> = settings.iter().map(|named| named.setting.clone()).collect();
    let predicted = hksim_memory_sim::predict(path, &plain, by.is_some(), detail)?;
    predicted.notes.iter().for_each(|note| warn(note));
    Ok(predicted.rows)
}

//! Reads results.

use std::path::Path;

use anyhow::{Result, bail};
use hksim_results::WRITE_RESULT;
use hksim_trace::error::TraceError;
use serde_json::Value;

use crate::output::file;

/// Reads a JSON result.
///
/// # Errors
/// The file cannot be read, or is not JSON.
pub fn read_result(path: &Path) -> Result<Value> {
    if file::is_recording(path) {
        return Err(TraceError::MemoryRecording { path: path.to_path_buf() }.into());
    }
    if file::is_trace(path) {
        bail!("{}: is a trace, not a result; predict its cost first: {WRITE_RESULT}", path.display());
    }
    Ok(hksim_results::read(path)?)
}

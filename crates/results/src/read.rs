//! Reads results.

use std::path::Path;

use hksim_explore::figure_range;
use hksim_trace::named_file;
use serde_json::Value;

use crate::error::ResultError;
use crate::stamp::refuse_other_schema;

/// Reads a JSON result.
///
/// # Errors
/// The file cannot be read, is not JSON, or has figures that no run can give.
pub fn read(path: &Path) -> Result<Value, ResultError> {
    let file = || path.display().to_string();
    let bytes = named_file::read(path).map_err(|source| ResultError::Io { file: file(), source })?;
    let result: Value = serde_json::from_slice(&bytes).map_err(|source| ResultError::Json { file: file(), source })?;
    refuse_other_schema(path, &result)?;
    figure_range::check(&result).map_err(|why| ResultError::In { file: file(), source: Box::new(why.into()) })?;
    Ok(result)
}

//! Reads results.

use std::path::Path;

use hksim_trace::named_file;
use serde_json::Value;

use crate::error::ResultError;
use crate::stamp::refuse_newer;
use crate::{result_numbers, schema_1};

/// A result, and what the user should know about its file.
#[derive(Clone, Debug)]
pub struct Read {
    /// The JSON result, with the current names.
    pub result: Value,
    /// A note, if it has old names.
    pub note: Option<String>,
}

/// Reads a JSON result. Old names are replaced.
///
/// # Errors
/// The file cannot be read, is not JSON, or has figures that no run can give.
pub fn read(path: &Path) -> Result<Read, ResultError> {
    let file = || path.display().to_string();
    let bytes = named_file::read(path).map_err(|source| ResultError::Io { file: file(), source })?;
    let mut result: Value =
        serde_json::from_slice(&bytes).map_err(|source| ResultError::Json { file: file(), source })?;
    refuse_newer(path, &result)?;
    let note = schema_1::upgrade(path, &mut result);
    result_numbers::check(&result).map_err(|why| ResultError::In { file: file(), source: Box::new(why) })?;
    Ok(Read { result, note })
}

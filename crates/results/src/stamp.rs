//! The identification of every JSON result.

use std::borrow::Cow;
use std::path::Path;

use hksim_sim::report::{SCHEMA, version};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ResultError;

/// The schema version of a result, and the program that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Version of the JSON schema ([`SCHEMA`]).
    pub schema: u32,
    /// [`version`].
    pub hksim_version: Cow<'static, str>,
}

impl Stamp {
    /// The stamp of this program.
    pub fn here() -> Stamp {
        Stamp { schema: SCHEMA, hksim_version: Cow::Borrowed(version()) }
    }
}

/// Refuses a result of another schema than this program's.
///
/// # Errors
/// The result has such a schema.
pub fn refuse_other_schema(path: &Path, result: &Value) -> Result<(), ResultError> {
    let Some(schema) = result["schema"].as_u64().filter(|&schema| schema != u64::from(SCHEMA)) else { return Ok(()) };
    Err(ResultError::OtherSchema {
        file: path.display().to_string(),
        schema,
        version: result["hksim_version"].as_str().unwrap_or("?").to_string(),
    })
}

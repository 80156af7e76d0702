//! The identification of every JSON result.

use std::path::Path;

use anyhow::{Result, bail};
use hksim_sim::report::SCHEMA;
use serde::Serialize;
use serde_json::Value;

/// The version that results state, with the commit of the sources: `0.2.0+COMMIT` (`build.rs`).
pub const VERSION: &str = env!("HKSIM_VERSION");

/// The schema version of a result, and the program that wrote it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stamp {
    /// Version of the JSON schema ([`SCHEMA`]).
    schema: u32,
    /// [`VERSION`].
    hksim_version: &'static str,
}

impl Stamp {
    /// The stamp of this program.
    pub const HERE: Stamp = Stamp { schema: SCHEMA, hksim_version: VERSION };
}

/// Refuses a result of another schema than this program's.
///
/// # Errors
/// The result has such a schema.
pub fn refuse_other_schema(path: &Path, result: &Value) -> Result<()> {
    let Some(schema) = result["schema"].as_u64().filter(|&schema| schema != u64::from(SCHEMA)) else { return Ok(()) };
    let remedy = if schema > u64::from(SCHEMA) { "use a newer one" } else { "make the result again" };
    bail!(
        "{}: schema {schema} (hksim {}), and this hksim reads schema {SCHEMA}; {remedy}",
        path.display(),
        result["hksim_version"].as_str().unwrap_or("?")
    )
}

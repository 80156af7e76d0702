//! The result of `check`.

use std::path::Path;

use hksim_budget::checked::{Checked, CheckedRow};
use hksim_budget::consumers::Consumers;
use hksim_budget::row::{Row, Stored};
use hksim_explore::figure_range;
use hksim_sim::report::{SCHEMA, version};
use hksim_trace::named_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ResultError;
use crate::stamp::{Stamp, refuse_other_schema};

/// Designs held to a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckedBudget {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Whether every row is within its limits.
    pub is_within: bool,
    /// One row per trace and design.
    pub rows: Vec<CheckedRow>,
}

/// A limit of a row, as a line of CSV and Parquet.
#[derive(Debug, Serialize)]
pub struct LimitRow<'a> {
    /// The row.
    #[serde(flatten)]
    pub row: &'a Row,
    /// Whether requests failed.
    pub has_failed_requests: bool,
    /// The limit, with what came of it.
    pub limit: Checked,
}

impl<'a> LimitRow<'a> {
    fn new(checked: &'a CheckedRow, limit: &Checked) -> LimitRow<'a> {
        LimitRow { row: &checked.row, has_failed_requests: checked.has_failed_requests, limit: limit.clone() }
    }
}

/// One line for each limit of each row.
pub fn limit_rows(rows: &[CheckedRow]) -> Vec<LimitRow<'_>> {
    rows.iter().flat_map(|checked| checked.limits.iter().map(|limit| LimitRow::new(checked, limit))).collect()
}

/// The stored result; `None` if there is no file yet.
///
/// # Errors
/// The file is another one, or damaged.
pub fn stored(path: &Path) -> Result<Option<Stored>, ResultError> {
    if !path.exists() {
        return Ok(None);
    }
    let name = path.display();
    let text = named_file::read_regular_text(path)
        .map_err(|why| ResultError::file_by(format!("{name}: cannot read the stored result"), why))?;
    let other =
        || format!("{name}: not a result of `hksim check --update`; remove it, or name another file as `result`");
    // What the parser expected does not help: the file is another one, or was damaged.
    let value: Value = serde_json::from_str(&text).map_err(|_| ResultError::file(other()))?;
    refuse_other_schema(path, &value)?;
    figure_range::check(&value)
        .map_err(|why| ResultError::In { file: name.to_string(), source: Box::new(why.into()) })?;
    Stored::deserialize(value).map(Some).map_err(|_| ResultError::file(other()))
}

/// The rows, who uses the memory, and the installs of the allocators' libraries, as the result to store.
///
/// # Errors
/// A figure has no JSON form.
pub fn to_store(
    rows: &[CheckedRow],
    consumers: Vec<Consumers>,
    libraries: Vec<Consumers>,
) -> serde_json::Result<String> {
    let rows = rows.iter().map(|checked| checked.row.clone()).collect();
    let stored = Stored { schema: SCHEMA, hksim_version: version().into(), rows, consumers, libraries };
    Ok(serde_json::to_string_pretty(&stored)? + "\n")
}

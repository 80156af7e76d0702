//! The section of a budget's check.

use crate::error::{Context, Result};
use hksim_budget::checked::CheckedRow;
use hksim_budget::sentences::broken;
use serde::Deserialize;
use serde_json::Value;

use super::html::{paragraph, table};
use crate::tables::limits;

/// Whether the budget is kept, every limit, and what broke.
///
/// # Errors
/// The result is damaged.
pub fn body(result: &Value) -> Result<String> {
    let rows: Vec<CheckedRow> = Deserialize::deserialize(&result["rows"]).context("`rows` are damaged")?;
    let is_within = rows.iter().all(CheckedRow::is_within);
    let answer = if is_within { "Every design is within its limits." } else { "The budget is broken." };
    let broken: String = rows.iter().filter_map(broken).map(|line| paragraph(&line)).collect();
    Ok(paragraph(answer) + &broken + &table(&limits(&rows)))
}

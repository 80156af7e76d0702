//! The section of an inspected process.

use serde::Deserialize;
use serde_json::Value;

use super::html::{paragraph, table};
use crate::error::{Context, Result};
use crate::inspection::{HELPS, changes, facts, memory, remedies};
use hksim_results::inspect::InspectResult;
use hksim_text::plain::plain;
use hksim_text::table::Table;

/// What the process is, its memory, why it is not huge, and what would help; with two looks also what changed.
///
/// # Errors
/// The result is damaged.
pub fn body(result: &Value) -> Result<String> {
    let result = InspectResult::deserialize(result).context("not a result of `inspect`")?;
    let inspection = &result.inspection;
    let mut about = Table::new(["what", "is"], &[0, 1]);
    facts(inspection).into_iter().for_each(|(name, value)| about.push([name, plain(&value).as_ref()]));
    let memory = memory(inspection);
    let memory = memory
        .iter()
        .map(|part| table(&part.table) + &part.note.iter().map(|note| paragraph(note)).collect::<String>());
    let remedies = remedies(inspection);
    let remedies = [HELPS].into_iter().chain(remedies.iter().map(String::as_str)).map(paragraph);
    let changes = result.before.as_ref().map(|before| {
        let (words, changed) = changes(inspection, before);
        paragraph(&words) + &changed.as_ref().map(table).unwrap_or_default()
    });
    Ok(table(&about) + &memory.collect::<String>() + &remedies.collect::<String>() + &changes.unwrap_or_default())
}

//! What memory a running process has, as text; and what of it a report shows, too.

mod head;
mod tables;

use hksim_inspect::Inspection;
use hksim_inspect::region::Region;
use hksim_results::inspect::{Before, InspectResult};
use hksim_text::plain;
use hksim_text::table::{self, Table};
use hksim_text::units::{bytes, of};

pub(crate) use head::facts;
use tables::REGIONS_SHOWN;

/// A result as text, in tables of at most this many columns.
pub fn text(result: &InspectResult, columns: Option<usize>) -> String {
    let fitted = |table: Table| table.fitted(columns.unwrap_or(usize::MAX));
    let inspection = &result.inspection;
    let facts = facts(inspection).into_iter().map(|(name, value)| format!("{name:<14}{}", plain(&value)));
    let mut parts = vec![facts.collect()];
    for part in memory(inspection) {
        parts.push(fitted(part.table));
        parts.extend(part.note.map(|note| vec![note]));
    }
    let remedies = remedies(inspection).into_iter().map(|sentence| format!("- {sentence}"));
    parts.push([HELPS.to_string()].into_iter().chain(remedies).collect());
    parts.extend(result.before.as_ref().map(|before| {
        let (words, table) = changes(inspection, before);
        [words].into_iter().chain(table.into_iter().flat_map(fitted)).collect()
    }));
    table::text(&parts.join(&String::new()))
}

/// The heading of the remedies.
pub(crate) const HELPS: &str = "What would help:";

/// A table, with what it leaves out.
pub(crate) struct Part {
    pub table: Table,
    pub note: Option<String>,
}

/// The tables of one look.
pub(crate) fn memory(inspection: &Inspection) -> Vec<Part> {
    let shown = tables::shown_regions(inspection);
    let all = |table| Part { table, note: None };
    let mut parts = vec![Part { table: tables::regions(&shown), note: left_out(&shown) }];
    parts.extend(tables::largest(inspection).map(all));
    parts.extend([tables::ranges(inspection), tables::obstacles(&shown)].map(all));
    parts
}

/// The regions that the table leaves out.
fn left_out(shown: &[Region]) -> Option<String> {
    let hidden = shown.get(REGIONS_SHOWN..).filter(|hidden| !hidden.is_empty())?;
    let rest: u64 = hidden.iter().map(|region| region.rss_bytes).sum();
    Some(format!("and {} with {} (--format json lists them)", of(hidden.len() as u64, "smaller region"), bytes(rest)))
}

/// What would help, as sentences.
pub(crate) fn remedies(inspection: &Inspection) -> Vec<String> {
    const UNSEEN: &str = "What the allocator holds free, and malloc_trim would return, cannot be seen from outside.";
    let sentences = inspection.remedies.iter().map(|remedy| format!("{}.", plain(&remedy.sentence)));
    sentences.chain([UNSEEN.to_string()]).collect()
}

/// What changed since an earlier look: words, and a table if anything did.
pub(crate) fn changes(inspection: &Inspection, before: &Before) -> (String, Option<Table>) {
    let table = tables::changes(inspection, before);
    let same = if table.is_none() { " none of the figures has changed." } else { "" };
    (format!("after {:.1} s:{same}", before.waited_s), table)
}

//! The times of an explained design as text.

use hksim_results::explained_time::{TermRow, TimesExplained};
use hksim_text::table::Table;
use hksim_text::units::count;

/// Terms of each part; JSON has all.
const TERMS_MAX: usize = 6;

/// The time, or why it is not known.
pub fn lines(times: &TimesExplained) -> Vec<String> {
    let time = times.time.iter().map(|time| format!("time {time}"));
    time.chain(times.time_skipped.iter().map(|why| format!("time skipped: {why}"))).collect()
}

/// The terms of the time, by part. Those of installs are marked: the other tables divide them.
pub fn table(times: &TimesExplained) -> Table {
    let mut table = Table::new(["time by part", "term", "count", "ns/call", "by key"], &[0, 1, 4]);
    let total = |rows: &[&TermRow]| format!("{:.2}", rows.iter().map(|row| row.term.ns_per_call).sum::<f64>());
    for part in times.time_terms.chunk_by(|one, other| one.term.part == other.term.part) {
        let mut shown: Vec<&TermRow> = part.iter().collect();
        let rest = shown.split_off(shown.len().min(TERMS_MAX));
        for row in shown {
            let by_key = if row.is_by_key { "yes" } else { "" };
            let word = row.term.part.word();
            table.push([word, &row.term.name, &count(row.term.count), &total(&[row]), by_key]);
        }
        if let Some(first) = rest.first() {
            table.push([first.term.part.word(), &format!("{} more", rest.len()), "", &total(&rest), ""]);
        }
    }
    table
}

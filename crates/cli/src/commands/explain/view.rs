//! The result of `explain` as text.

use super::result::{Explanation, Part, PerMarkResult, START};
use crate::commands::sim::view::head;
use crate::flags::RunConfig;
use crate::output::table::{Table, text};
use crate::output::units::{bytes, count, percent};

/// Number of rows of each breakdown; JSON and CSV have all.
const ROWS_MAX: usize = 8;
/// Characters of a name.
const NAME_MAX: usize = 60;

/// The sentences, then a table for each key.
pub fn table(explanation: &Explanation, config: &RunConfig) -> String {
    let report = &explanation.report;
    let mut lines = head(report, config);
    lines.push(format!(
        "{} installs. At its peak the live set needs at least {} pages, and {} for the bytes that are touched. Peak RSS {}.",
        count(explanation.installs_total),
        count(report.floor_pages),
        count(report.floor_touched_pages),
        bytes(report.rss_bytes_peak)
    ));
    for (number, cause) in explanation.causes.iter().enumerate() {
        lines.push(String::new());
        lines.push(format!("{}. {}", number + 1, cause.sentence));
        lines.push(format!("   {}", cause.remedy_sentence));
    }
    if let Some(against) = &explanation.against {
        lines.push(String::new());
        lines.push("against the other policy".into());
        lines.extend(against.sentences.iter().map(|sentence| format!("  {sentence}")));
    }
    if let Some(per_mark) = &explanation.per_mark {
        lines.push(String::new());
        lines.extend(per_mark_lines(per_mark));
    }
    for (key, parts) in explanation.by.lists() {
        if says_something(parts) {
            lines.push(String::new());
            lines.extend(breakdown(key, parts, explanation.installs_total));
        }
    }
    text(&lines)
}

/// Whether a breakdown divides the installs of the trace itself.
fn says_something(parts: &[Part]) -> bool {
    parts.iter().filter(|part| part.installs > 0 && part.name != START).count() > 1
}

fn per_mark_lines(per_mark: &PerMarkResult) -> Vec<String> {
    let PerMarkResult { mark, marks, installs_before, installs_mean, .. } = per_mark;
    let PerMarkResult { installs_median, installs_p99, installs_max, .. } = per_mark;
    vec![format!(
        "per mark `{mark}`: {} marks, {installs_mean:.2} installs each (median {}, 99 % at most {}, most {}); {} before the first",
        count(*marks),
        count(*installs_median),
        count(*installs_p99),
        count(*installs_max),
        count(*installs_before)
    )]
}

/// The largest entries; those of time in their order.
fn breakdown(key: &str, parts: &[Part], total: u64) -> Vec<String> {
    let mut shown: Vec<&Part> = parts.iter().collect();
    let is_time = key == "time";
    if !is_time {
        shown.sort_by_key(|part| std::cmp::Reverse(part.installs));
    }
    let rest = if is_time { Vec::new() } else { shown.split_off(shown.len().min(ROWS_MAX)) };
    let mut table = Table::new([format!("by {key}").as_str(), "installs", "share"], &[0]);
    for part in shown {
        table.push([shortened(&part.name), count(part.installs), percent(part.installs, total)]);
    }
    if !rest.is_empty() {
        let installs = rest.iter().map(|part| part.installs).sum();
        table.push([format!("{} more", count(rest.len() as u64)), count(installs), percent(installs, total)]);
    }
    table.lines()
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.replace('_', " ");
    }
    name.chars().take(NAME_MAX - 3).chain("...".chars()).collect()
}

//! The result of `explain` as text.

use crate::commands::sim::view::head;
use crate::flags::RunConfig;
use crate::output::plain;
use crate::output::table::{Lines, Table, text};
use crate::output::units::{bytes, count, of, percent};
use hksim_explore::described::Described;
use hksim_results::explain::{Explanation, Part, PerMarkResult, START};

/// Number of rows of each breakdown; JSON and CSV have all.
const ROWS_MAX: usize = 8;
/// Characters of a name.
const NAME_MAX: usize = 60;

/// The sentences, then a table for each key.
pub fn table<P: Described>(explanation: &Explanation<P>, config: &RunConfig) -> String {
    let report = &explanation.report;
    let mut lines = head(report, config);
    lines.push(format!(
        "{} installs. At its peak the live set needs at least {}, and {} for the bytes that are touched. Peak RSS {}.",
        count(explanation.installs_total),
        of(report.floor_pages, "page"),
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
        lines.push(format!("against {}", plain(&against.name)));
        lines.extend(against.sentences.iter().map(|sentence| format!("  {sentence}")));
    }
    if let Some(per_mark) = &explanation.per_mark {
        lines.push(String::new());
        lines.extend(per_mark_lines(per_mark));
    }
    for (key, parts) in explanation.by.lists() {
        let parts = if key == "site" { &explanation.callers } else { parts };
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
    let PerMarkResult { mark, marks, installs_before, installs_elsewhere, installs_mean, .. } = per_mark;
    let PerMarkResult { installs_median, installs_p99, installs_max, .. } = per_mark;
    let elsewhere = match installs_elsewhere {
        0 => String::new(),
        installs => format!(", {} after other marks", count(*installs)),
    };
    vec![format!(
        "per mark `{}`: {}, {installs_mean:.2} installs each (median {installs_median}, 99 % at most {}, most {}); {} before the first{elsewhere}",
        plain(mark),
        of(*marks, "mark"),
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
        // Words of results have underscores; names of the program stay as they are.
        let name = if key == "reason" { part.name.replace('_', " ") } else { shortened(&part.name) };
        table.push([name, count(part.installs), percent(part.installs, total)]);
    }
    if !rest.is_empty() {
        let installs = rest.iter().map(|part| part.installs).sum();
        table.push([format!("{} more", count(rest.len() as u64)), count(installs), percent(installs, total)]);
    }
    table.lines()
}

/// A name without control characters and, in the middle, without what is too long.
fn shortened(name: &str) -> String {
    let name = plain(name);
    let characters: Vec<char> = name.chars().collect();
    let Some(rest) = characters.len().checked_sub(NAME_MAX).filter(|&rest| rest > 0) else { return name.into_owned() };
    let (before, after) = (NAME_MAX / 2, NAME_MAX / 2 + rest + 3);
    characters[..before].iter().chain(&['.'; 3]).chain(&characters[after..]).collect()
}

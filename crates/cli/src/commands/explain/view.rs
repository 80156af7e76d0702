//! The result of `explain` as text.

use crate::commands::sim::view::head;
use crate::flags::RunConfig;
use crate::output::plain;
use crate::output::table::{Lines, text};
use crate::output::units::{bytes, count, of};
use hksim_explore::described::Described;
use hksim_reports::{breakdown, explained_time};
use hksim_results::explain::{Explanation, PerMarkResult};

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
    lines.extend(explanation.times.iter().flat_map(explained_time::lines));
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
        if breakdown::says_something(parts) {
            lines.push(String::new());
            lines.extend(breakdown::table(key, parts, explanation.installs_total).lines());
        }
    }
    if let Some(times) = explanation.times.as_ref().filter(|times| !times.time_terms.is_empty()) {
        lines.push(String::new());
        lines.extend(explained_time::table(times).lines());
    }
    text(&lines)
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

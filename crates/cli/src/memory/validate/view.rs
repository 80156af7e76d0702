//! A validation as text and CSV.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Row;
use super::compare::Comparison;
use super::figures::{Figures, kib};
use crate::output::plain;
use crate::output::table::{Table, text};
use crate::output::units::{bytes, count};
use crate::validate::Verdict;

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Skipped => "skipped",
        Verdict::Ok => "ok",
        Verdict::Failed => "FAILED",
    }
}

/// Figures, claim and verdict of each row.
pub fn figures_table(rows: &[Row]) -> Table {
    let head = [
        "recording",
        "setting",
        "traps",
        "measured",
        "huge",
        "measured",
        "RSS at exit",
        "measured",
        "pages +/-",
        "residual",
        "class",
        "verdict",
    ];
    let mut table = Table::new(head, &[0, 1, 10, 11]);
    for row in rows {
        let setting: Vec<String> = row.setting.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        let mut cells = vec![plain(&row.file).into_owned(), setting.join(", ")];
        cells.extend(figures(row.comparison.as_ref()));
        cells.push(row.class.map_or("", |class| class.word()).to_string());
        cells.push(word(row.verdict).to_string());
        table.push(cells);
    }
    table
}

/// The reasons of the rows' verdicts, and what differs.
pub fn notes(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        if let Some(time) = &row.system_time {
            lines.push(format!("row {number}: predicted system time {} (not compared)", time.text()));
        }
        if let Some(reason) = &row.reason {
            lines.push(format!("row {number}: {}: {reason}", word(row.verdict)));
        }
        let difference = row.comparison.as_ref().and_then(|comparison| comparison.first_difference.as_ref());
        if let Some(at) = difference.filter(|_| row.verdict == Verdict::Failed) {
            lines.push(format!(
                "row {number}: first differing mapping: number {} ({:?}, {} at {:#x}): {} traps predicted, {} measured",
                at.mapping,
                at.usage,
                bytes(at.bytes),
                at.address,
                count(at.traps_predicted),
                count(at.traps_measured)
            ));
        }
    }
    lines
}

/// One line per row, then the reasons.
pub fn table(rows: &[Row], verdict: Verdict) -> String {
    let mut lines = figures_table(rows).lines();
    lines.push(String::new());
    lines.extend(notes(rows));
    lines.push(format!("verdict: {}", word(verdict)));
    lines.push("traps, huge pages and RSS are those of anonymous memory; several runs: lowest to highest".to_string());
    lines.push(stacks_text(rows));
    lines.push(
        "pages +/-: pages in that state at the exit in the prediction only / in the measurement only".to_string(),
    );
    lines.push("residual: sum of |prediction - measurement| over traps, huge pages and resident pages".to_string());
    text(&lines)
}

/// Whether stacks were compared.
fn stacks_text(rows: &[Row]) -> String {
    let compared = rows.iter().filter_map(|row| row.comparison.as_ref());
    match compared.clone().next().is_none() || compared.clone().any(|comparison| !comparison.stacks.is_empty()) {
        true => "stacks that grow, such as the main stack, are compared apart, with a range (JSON: stacks)".to_string(),
        false => "not compared: stacks that grow, such as the main stack".to_string(),
    }
}

fn figures(comparison: Option<&Comparison>) -> Vec<String> {
    let Some(comparison) = comparison else { return vec![String::new(); 8] };
    let Comparison { predicted, measured, residual, pages_differ, .. } = comparison;
    let range = |figures: &[Figures], value: fn(&Figures) -> u64, show: fn(u64) -> String| {
        let values = || figures.iter().map(value);
        match (values().min(), values().max()) {
            (Some(low), Some(high)) if low != high => format!("{} to {}", show(low), show(high)),
            (Some(low), _) => show(low),
            _ => String::new(),
        }
    };
    let both = |value: fn(&Figures) -> u64, show: fn(u64) -> String| {
        let values: BTreeSet<u64> = predicted.iter().chain(measured).map(value).collect();
        let texts: BTreeSet<String> = values.iter().map(|&value| show(value)).collect();
        // Different values must not look equal.
        let show = if texts.len() < values.len() { kib } else { show };
        [range(predicted, value, show), range(measured, value, show)]
    };
    let mut cells = Vec::new();
    cells.extend(both(|figures| figures.traps, count));
    cells.extend(both(|figures| figures.huge_pages_end, count));
    cells.extend(both(|figures| figures.rss_bytes_end, bytes));
    cells.push(match pages_differ {
        Some([ours, theirs]) => format!("{} / {}", count(*ours), count(*theirs)),
        None => "not scanned".to_string(),
    });
    cells.push(count(*residual));
    cells
}

/// One row per recording, setting and measured run.
pub fn csv(rows: &[Row]) -> Vec<Map<String, Value>> {
    let mut lines = Vec::new();
    for row in rows {
        let setting: Vec<String> = row.setting.iter().map(|(flag, value)| format!("{flag}={value}")).collect();
        let pairs: Vec<(Option<&Figures>, Option<&Figures>)> = match &row.comparison {
            None => vec![(None, None)],
            Some(comparison) => {
                let pairs = comparison.predicted.iter().zip(&comparison.measured);
                pairs.map(|(predicted, measured)| (Some(predicted), Some(measured))).collect()
            }
        };
        for (run, (predicted, measured)) in pairs.into_iter().enumerate() {
            let stack = row.comparison.as_ref().and_then(|comparison| comparison.stacks.get(run));
            let line = json!({
                "file": row.file, "command": row.command.join(" "), "setting": setting.join(" "), "run": run,
                "class": row.class, "verdict": row.verdict, "reason": row.reason,
                "stack_traps_predicted_min": stack.map(|stack| stack.traps_predicted[0]),
                "stack_traps_predicted_max": stack.map(|stack| stack.traps_predicted[1]),
                "stack_traps_measured": stack.map(|stack| stack.traps_measured),
                "traps_predicted": predicted.map(|figures| figures.traps),
                "traps_measured": measured.map(|figures| figures.traps),
                "huge_pages_end_predicted": predicted.map(|figures| figures.huge_pages_end),
                "huge_pages_end_measured": measured.map(|figures| figures.huge_pages_end),
                "rss_bytes_end_predicted": predicted.map(|figures| figures.rss_bytes_end),
                "rss_bytes_end_measured": measured.map(|figures| figures.rss_bytes_end),
                "rss_bytes_peak_predicted": predicted.map(|figures| figures.rss_bytes_peak),
                "rss_bytes_peak_measured": measured.and_then(|figures| figures.rss_bytes_peak),
                "rss_bytes_peak_max_measured": measured.and_then(|figures| figures.rss_bytes_peak_max),
            });
            if let Value::Object(fields) = line {
                lines.push(fields);
            }
        }
    }
    lines
}

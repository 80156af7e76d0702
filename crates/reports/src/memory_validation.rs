//! A validation of memory recordings as text and CSV.

use hksim_text::table::text;
use hksim_validate::Verdict;
use hksim_validate::memory::{Figures, Row};
use serde_json::{Map, Value, json};

use crate::tables::{figures_table, notes};

/// One line per row, then the reasons, in tables of at most this many columns.
pub fn table(rows: &[Row], verdict: Verdict, columns: Option<usize>) -> String {
    let mut lines = figures_table(rows).fitted(columns.unwrap_or(usize::MAX));
    lines.push(String::new());
    lines.extend(notes(rows));
    lines.push(format!("verdict: {}", verdict.word()));
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
                "file": row.file, "allocator": row.allocator.as_ref().map(|label| &label.name), "command": row.command.join(" "), "setting": setting.join(" "), "run": run,
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

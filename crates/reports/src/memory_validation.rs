//! A validation of memory recordings as text and CSV.

use hksim_text::table::{Table, text};
use hksim_validate::Verdict;
use hksim_validate::memory::{Figures, LimitFigures, Row};
use serde_json::{Map, Value, json};

use crate::memory_limit;
use crate::tables::{figures_table, notes};

/// One line per row, then the reasons, in tables of at most this many columns.
pub fn table(rows: &[Row], verdict: Verdict, columns: Option<usize>) -> String {
    let [figures, limits] = tables(rows);
    let mut lines = Vec::new();
    for table in [&figures, &limits].into_iter().flatten() {
        lines.extend(table.fitted(columns.unwrap_or(usize::MAX)));
        lines.push(String::new());
    }
    lines.extend(notes(rows));
    lines.extend(memory_limit::places_unknown(rows));
    lines.push(format!("verdict: {}", verdict.word()));
    if limits.is_some() {
        lines.push(
            "runs: in a memory control group, whose limit is larger by what the kernel needs for a process; -> with room \
             for what is not known exactly; killed in: this operation of a recorded run under the limit, which is the \
             predicted one (same), within what can differ from it, where the model reaches the limit in the run's own \
             order of threads or processes, or not; peak charge: without a limit, measured with up to 64 pages charged in \
             advance"
                .to_string(),
        );
    }
    if figures.is_some() {
        lines.extend(legend(rows));
    }
    text(&lines)
}

/// The table of the figures, unless all rows are about a memory limit, and that of the limits, if any are.
pub(crate) fn tables(rows: &[Row]) -> [Option<Table>; 2] {
    let limits = memory_limit::validated(rows);
    let has_others = limits.is_none() || rows.iter().any(|row| !row.has_limit());
    [has_others.then(|| figures_table(rows)), limits]
}

/// What the figures of rows without a limit mean.
fn legend(rows: &[Row]) -> [String; 4] {
    [
        "traps, huge pages and RSS are those of anonymous memory; several runs: lowest to highest".to_string(),
        stacks_text(rows),
        "pages +/-: pages in that state at the exit in the prediction only / in the measurement only".to_string(),
        "residual: sum of |prediction - measurement| over traps, huge pages and resident pages".to_string(),
    ]
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
        let pairs: Vec<(Option<&Figures>, Option<&Figures>)> = match (&row.comparison, &row.memory_limit) {
            (None, limited) => vec![(None, None); limited.as_ref().map_or(1, |figures| figures.runs.len())],
            (Some(comparison), _) => {
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
            let parts = [line, limit_columns(row.memory_limit.as_ref(), run)];
            let fields = parts.into_iter().filter_map(|part| match part {
                Value::Object(fields) => Some(fields),
                _ => None,
            });
            lines.push(fields.flatten().collect());
        }
    }
    lines
}

/// The columns about a memory limit, of one of its runs.
fn limit_columns(figures: Option<&LimitFigures>, run: usize) -> Value {
    let predicted = figures.map(|figures| &figures.predicted);
    let run = figures.and_then(|figures| figures.runs.get(run));
    let peak = figures.and_then(|figures| figures.peak);
    json!({
        "memory_limit_bytes": predicted.map(|limit| limit.limit_bytes),
        "memory_limit_outcome_predicted": predicted.map(|limit| limit.outcome),
        "least_limit_bytes_predicted": predicted.and_then(|limit| limit.least_limit_bytes),
        "kernel_bytes": figures.map(|figures| figures.kernel_bytes),
        "group_limit_bytes": run.map(|run| run.limit_bytes),
        "memory_limit_outcome_measured": run.map(|run| run.outcome),
        "charged_bytes_peak_predicted": peak.map(|peak| peak.predicted_bytes),
        "charged_bytes_peak_measured": peak.map(|peak| peak.measured_bytes),
    })
}

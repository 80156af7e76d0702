//! A comparison as text.

use crate::output::columns::ColumnsArgs;
use crate::output::table::{Lines, Table, text};
use crate::output::units::{bytes, count, of};
use crate::output::{plain, warn};
use hksim_explore::origin::origin_text;
use hksim_replay::compare::{Outcome, Row, Spread};
use hksim_results::replay::ComparisonReport;

/// Figures of the table; a note is printed if one is missing.
const SHOWN: [&str; 5] = ["faults", "traps", "rss_bytes_peak", "ops_per_s", "sys_s"];

/// The columns of the table.
pub const COLUMNS: [&str; 9] =
    ["allocator", "faults", "traps", "RSS peak", "RSS end", "M calls/s", "user", "system", "failed"];

/// The whole report, or the chosen columns of its table.
pub fn table(report: &ComparisonReport, columns: &ColumnsArgs) -> String {
    if columns.is_given() {
        // The table is printed alone, but a row that is missing would not be noticed.
        missing(&report.rows).iter().for_each(|line| warn(line));
        return text(&columns.lines(&figures(&report.rows)));
    }
    let file = report.trace.file.as_deref().unwrap_or_default();
    let mode = format!("{:?}", report.mode).to_lowercase();
    let rounds = of(u64::from(report.runs), "round");
    let mut lines = vec![
        format!("trace    {file}, {}; {} events", origin_text(&report.trace.origin), count(report.events)),
        format!("touches  {}", report.touch.rule.word()),
        format!("runs     {rounds} of all allocators in turn, {mode}, after {} warm-up round", report.warm_up_runs),
    ];
    let variables = &report.environment.variables;
    lines.extend(variables.iter().map(|(name, value)| format!("{:<9}{name}={}", "variable", plain(value))));
    lines.push(String::new());
    lines.extend(figures(&report.rows).lines());
    lines.extend(
        report
            .environment
            .modes_changed
            .iter()
            .map(|change| format!("changed during the comparison: {change}: rounds are not comparable; compare again")),
    );
    lines.push("median of the rounds; +-: half the interquartile range, if it is not 0".into());
    lines.extend(missing(&report.rows));
    text(&lines)
}

/// The rows and figures that are missing, with the reasons.
fn missing(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        if let Some(reason) = &row.reason {
            let verdict = if row.outcome == Outcome::Failed { "failed" } else { "skipped" };
            lines.push(format!("{verdict}: {}: {reason}", row.allocator));
        }
        for skipped in row.skipped.iter().filter(|skipped| SHOWN.contains(&skipped.figure.as_str())) {
            lines.push(format!("skipped: {}: {}: {}", row.allocator, skipped.figure, skipped.reason));
        }
    }
    lines
}

fn figures(rows: &[Row]) -> Table {
    let mut table = Table::new(COLUMNS, &[0]);
    for row in rows.iter().filter(|row| row.outcome == Outcome::Measured) {
        let figures = &row.figures;
        table.push([
            row.allocator.clone(),
            counts(&figures.faults, count),
            counts(&figures.traps, count),
            counts(&figures.rss_bytes_peak, bytes),
            counts(&figures.rss_bytes_end, bytes),
            rates(&figures.ops_per_s, |ops| format!("{:.2}", ops / 1e6)),
            rates(&figures.user_s, |seconds| format!("{seconds:.3} s")),
            rates(&figures.sys_s, |seconds| format!("{seconds:.3} s")),
            counts(&figures.requests_failed, count),
        ]);
    }
    table
}

fn counts(spread: &Option<Spread<u64>>, show: fn(u64) -> String) -> String {
    with_spread(spread, |spread| (spread.quartile_high - spread.quartile_low) / 2, show)
}

fn rates(spread: &Option<Spread<f64>>, show: fn(f64) -> String) -> String {
    with_spread(spread, |spread| (spread.quartile_high - spread.quartile_low) / 2.0, show)
}

/// `median +-half`, where half is half the interquartile range and is left out if it would print as 0; `-` if the
/// figure was not measured.
fn with_spread<T: Copy + Default>(
    spread: &Option<Spread<T>>,
    half: fn(&Spread<T>) -> T,
    show: fn(T) -> String,
) -> String {
    let Some(spread) = spread else { return "-".to_string() };
    let half = show(half(spread));
    if half == show(T::default()) { show(spread.median) } else { format!("{} +-{half}", show(spread.median)) }
}

//! Tables that the command prints and a report shows.
use hksim_explore::budget::CheckedRow;
use hksim_explore::sentences::percent_signed;
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count};
use hksim_validate::Verdict;
use hksim_validate::memory::{Comparison, Figures, Row, kib};
use std::collections::BTreeSet;

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
        cells.push(row.verdict.word().to_string());
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
            lines.push(format!("row {number}: {}: {reason}", row.verdict.word()));
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

/// The limits of each row, with what came of them.
pub fn limits(rows: &[CheckedRow]) -> Table {
    let mut table =
        Table::new(["trace", "design", "limit", "amount", "allowed", "stored", "change", ""], &[0, 1, 2, 7]);
    for checked in rows {
        for limit in &checked.limits {
            let metric = limit.allowed.metric;
            let amounts: Vec<f64> =
                [limit.amount, Some(limit.allowed.most), limit.stored].into_iter().flatten().collect();
            let mut texts = metric.texts(&amounts).into_iter();
            let mut shown = |is_known: bool| if is_known { texts.next().unwrap_or_default() } else { "-".into() };
            let change = limit.amount.zip(limit.stored).filter(|(now, before)| now != before && *before > 0.0);
            table.push([
                checked.row.trace.clone(),
                checked.row.design.clone(),
                metric.name().into(),
                shown(limit.amount.is_some()),
                shown(true),
                shown(limit.stored.is_some()),
                change.map_or(String::new(), |(now, before)| percent_signed(now / before - 1.0)),
                if limit.is_within { "ok" } else { "BROKEN" }.to_string(),
            ]);
        }
    }
    table
}

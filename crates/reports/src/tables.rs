//! Tables that the command prints and a report shows.
use hksim_budget::checked::{Checked, CheckedRow, Difference};
use hksim_budget::sentences::broken;
use hksim_explore::sentences::percent_signed;
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count};
use hksim_validate::Verdict;
use hksim_validate::memory::{Comparison, Figures, Row, kib};
use std::collections::BTreeSet;

/// Figures, claim and verdict of each row.
pub fn figures_table(rows: &[Row]) -> Table {
    let has_allocators = rows.iter().any(|row| row.allocator.is_some());
    let head: &[&str] = match has_allocators {
        true => &["trace", "allocator", "setting"],
        false => &["recording", "setting"],
    };
    let figures = ["traps", "measured", "huge", "measured", "RSS at exit", "measured", "pages +/-", "residual"];
    let peaks: &[&str] = if has_allocators { &["peak RSS", "measured"] } else { &[] };
    let columns = head.len() + peaks.len() + figures.len();
    let words: Vec<usize> = (0..head.len()).chain([columns, columns + 1]).collect();
    let names = head.iter().chain(peaks).copied().chain(figures).chain(["class", "verdict"]);
    let mut table = Table::new(names, &words);
    for row in rows.iter().filter(|row| !row.has_limit()) {
        let setting: Vec<String> = row.setting.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
        let mut cells = vec![plain(&row.file).into_owned()];
        if has_allocators {
            cells.push(row.allocator.as_ref().map_or(String::new(), |label| label.name.clone()));
        }
        cells.push(setting.join(", "));
        if has_allocators {
            cells.extend(peak_cells(row.comparison.as_ref()));
        }
        cells.extend(figures_cells(row.comparison.as_ref()));
        cells.push(row.class.map_or("", |class| class.word()).to_string());
        cells.push(row.verdict.word().to_string());
        table.push(cells);
    }
    table
}

/// The predicted peak, and between which bytes the measured one lies.
fn peak_cells(comparison: Option<&Comparison>) -> [String; 2] {
    let Some(Comparison { predicted, measured, .. }) = comparison else { return [String::new(), String::new()] };
    let range = |least: Option<u64>, most: Option<u64>| match (least, most) {
        (Some(least), Some(most)) if least != most => format!("{} to {}", kib(least), kib(most)),
        (Some(least), _) => kib(least),
        (None, _) => "-".to_string(),
    };
    let peaks = |figures: &[Figures]| figures.iter().filter_map(|one| one.rss_bytes_peak).collect::<Vec<u64>>();
    let (own, least) = (peaks(predicted), peaks(measured));
    let most = measured.iter().filter_map(|one| one.rss_bytes_peak_max.or(one.rss_bytes_peak)).max();
    [range(own.iter().min().copied(), own.iter().max().copied()), range(least.iter().min().copied(), most)]
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

fn figures_cells(comparison: Option<&Comparison>) -> Vec<String> {
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

/// The check of a budget, in this many columns: its limits, what broke, and the verdict. `is_stored`: whether it
/// replaces the stored result.
pub fn checked(rows: &[CheckedRow], is_stored: bool, columns: Option<usize>) -> String {
    let mut lines = limits(rows).fitted(columns.unwrap_or(usize::MAX));
    lines.push(String::new());
    lines.extend(rows.iter().filter_map(broken));
    if rows.iter().flat_map(|checked| &checked.limits).any(Checked::is_tie) {
        lines.push(
            "tie: the limit is within the 95 % interval of the measured time, so it is not known to be broken".into(),
        );
    }
    let is_new = |checked: &CheckedRow| checked.differences.contains(&Difference::NotStored);
    if !is_stored && rows.iter().any(is_new) {
        lines.push("Some rows have no stored result to compare with; add --update to store this one.".into());
    }
    let is_within = rows.iter().all(CheckedRow::is_within);
    lines.push(format!("budget: {}\n", if is_within { "ok" } else { "broken" }));
    lines.join("\n")
}

/// What came of a limit.
fn outcome(limit: &Checked) -> &'static str {
    match (limit.is_within, limit.is_tie()) {
        (false, _) => "BROKEN",
        (true, true) => "tie",
        (true, false) => "ok",
    }
}

/// The limits of each row, with what came of them.
pub fn limits(rows: &[CheckedRow]) -> Table {
    let mut table =
        Table::new(["trace", "design", "limit", "amount", "allowed", "stored", "change", ""], &[0, 1, 2, 7]);
    for checked in rows {
        for limit in &checked.limits {
            let metric = limit.metric;
            let amounts = [limit.amount, limit.most, limit.stored];
            let mut texts = metric.texts(&amounts.into_iter().flatten().collect::<Vec<f64>>()).into_iter();
            let [amount, most, stored] =
                amounts.map(|known| known.and_then(|_| texts.next()).unwrap_or_else(|| "-".into()));
            let change = limit.amount.zip(limit.stored).filter(|(now, before)| now != before && *before > 0.0);
            table.push([
                checked.row.trace.clone(),
                checked.row.design.clone(),
                metric.name().into(),
                amount,
                most,
                stored,
                change.map_or(String::new(), |(now, before)| percent_signed(now / before - 1.0)),
                outcome(limit).to_string(),
            ]);
        }
    }
    table
}

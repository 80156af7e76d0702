//! The page faults of a program, explained as text.

use hksim_text::table::{self, Table};
use hksim_text::units::{bytes, count, of, percent, time};
use hksim_trace::import::faults::{FaultReport, Reasons, RegionKind, RegionRow};

/// Maximum rows of each table; JSON has all.
const ROWS_SHOWN: usize = 12;

/// The explanation of the script `file` as text, in tables of at most this many columns.
pub fn text(file: &str, report: &FaultReport, columns: Option<usize>) -> String {
    let fitted = |table: Table| table.fitted(columns.unwrap_or(usize::MAX));
    let faults = of(report.faults, "page fault");
    let lines = count(report.lines);
    let mut all = vec![format!(
        "{file}: {faults} of process {} ({}) in {}, from {lines} lines",
        report.process,
        report.command,
        time(report.duration_ns)
    )];
    all.extend(left_out(report));
    all.push(String::new());
    all.extend(fitted(reasons(&report.reasons, report.faults)));
    all.push(format!(
        "taken in system calls: {} ({})",
        count(report.kernel_faults),
        percent(report.kernel_faults, report.faults)
    ));
    all.push(String::new());
    all.extend(fitted(regions(report)));
    all.push(String::new());
    all.extend(fitted(mappings(report)));
    if !report.functions.is_empty() {
        all.push(String::new());
        all.extend(fitted(code(report)));
    }
    table::text(&all)
}

/// Events that the figures leave out.
fn left_out(report: &FaultReport) -> Vec<String> {
    let mut lines = Vec::new();
    if report.other_process_faults > 0 {
        let named: Vec<String> = report.other_processes.iter().map(u64::to_string).collect();
        lines.push(format!(
            "omitted: {} of other processes ({}; --pid)",
            count(report.other_process_faults),
            named.join(", ")
        ));
    }
    if report.records_lost > 0 {
        lines.push(format!("perf lost {} records: record with a larger buffer (-m)", count(report.records_lost)));
    }
    if report.other_lines > 0 {
        lines.push(format!("not used: {} of other events or other programs", of(report.other_lines, "line")));
    }
    lines
}

fn reasons(reasons: &Reasons, faults: u64) -> Table {
    let mut table = Table::new(["reason", "faults", ""], &[0]);
    for (name, number) in [
        ("first touch of a page", reasons.first_touch),
        ("page was returned to the kernel (madvise)", reasons.after_drop),
        ("page is present: write to the zero page, copy, protection", reasons.page_present),
        ("page was present before and is gone", reasons.page_not_present),
        ("same page again, cause not in the script", reasons.repeated),
    ] {
        if number > 0 {
            table.push([name.to_string(), count(number), percent(number, faults)]);
        }
    }
    table
}

fn regions(report: &FaultReport) -> Table {
    let mut table = Table::new(["region", "faults", "", "first touch", "others", "first", "last"], &[0]);
    let row = |table: &mut Table, name: String, rows: &[RegionRow]| {
        let sum = |figure: fn(&RegionRow) -> u64| rows.iter().map(figure).sum::<u64>();
        let (faults, first_touch) = (sum(|row| row.faults), sum(|row| row.reasons.first_touch));
        let first_ns = rows.iter().map(|row| row.first_ns).min().unwrap_or(0);
        let last_ns = rows.iter().map(|row| row.last_ns).max().unwrap_or(0);
        table.push([
            name,
            count(faults),
            percent(faults, report.faults),
            count(first_touch),
            count(faults - first_touch),
            time(first_ns),
            time(last_ns),
        ]);
    };
    let shown = report.regions.len().min(ROWS_SHOWN);
    for region in &report.regions[..shown] {
        row(&mut table, region.name.clone(), std::slice::from_ref(region));
    }
    let rest = &report.regions[shown..];
    if !rest.is_empty() {
        row(&mut table, of(rest.len() as u64, "other"), rest);
    }
    table
}

fn mappings(report: &FaultReport) -> Table {
    let mut table = Table::new(["mapping", "size", "faults", "first touch", "what"], &[0, 4]);
    let of_interest = report.mappings.iter().filter(|mapping| mapping.region != RegionKind::File);
    for mapping in of_interest.take(ROWS_SHOWN) {
        table.push([
            format!("{:x}-{:x}", mapping.start, mapping.end),
            bytes(mapping.end - mapping.start),
            count(mapping.faults),
            count(mapping.first_touch),
            mapping.name.clone(),
        ]);
    }
    table
}

fn code(report: &FaultReport) -> Table {
    let mut table = Table::new(["function", "faults", ""], &[0]);
    for row in report.functions.iter().take(ROWS_SHOWN) {
        table.push([row.function.clone(), count(row.faults), percent(row.faults, report.faults)]);
    }
    table
}

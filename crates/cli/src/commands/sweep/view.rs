//! A sweep as text: one table per trace.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use hksim_policy::units::Size;
use hksim_policy::{PAGE_BYTES, Policy};
use hksim_sim::SimReport;
use serde::Serialize;

use super::answers;
use crate::commands::sim::view::{kernel_text, made_up_times, memory_policy_text, touch_rule_text};
use crate::flags::RunConfig;
use crate::flags::table::FLAGS;
use crate::output::OutputArgs;
use crate::output::columns::{ColumnsArgs, FRONT};
use crate::output::table::{Lines, Table, text};
use crate::output::units::{bytes, bytes_apart, count};
use hksim_cost_model::SystemTime;
use hksim_cost_model::system_time::states;
use hksim_explore::answers::missing_text;
use hksim_explore::described::{Described, Flags, cell, row_flags, some_flags};
use hksim_explore::origin::origin_text;
use hksim_explore::priced::{Priced, figures};
use hksim_reports::simulation::huge_bytes_peak;
use hksim_results::sweep::{Head, PricedSweep};

/// A figure of a row, as a column.
struct Column<P> {
    head: &'static str,
    /// The value that rows are compared by.
    key: fn(&Priced<P>) -> f64,
    show: Show<P>,
    best: Best,
    /// Omit the column if it is 0 in every row.
    is_optional: bool,
}

/// How the figures of a column are written.
enum Show<P> {
    /// Each figure separately.
    Each(fn(&Priced<P>) -> String),
    /// Bytes, with enough digits to distinguish different ones: a row may be on the Pareto front by a small difference.
    Bytes(fn(&Priced<P>) -> u64),
}

impl<P> Show<P> {
    fn cells(&self, rows: &[Priced<P>]) -> Vec<String> {
        match self {
            Show::Each(show) => rows.iter().map(show).collect(),
            Show::Bytes(figure) => bytes_apart(&rows.iter().map(figure).collect::<Vec<u64>>()),
        }
    }
}

/// Which figure of a column is best.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Lowest,
    Highest,
    /// A part of another column: no value is best.
    None,
}

fn low<P>(head: &'static str, key: fn(&Priced<P>) -> f64, show: fn(&Priced<P>) -> String) -> Column<P> {
    Column { head, key, show: Show::Each(show), best: Best::Lowest, is_optional: false }
}

fn kind<P>(head: &'static str, key: fn(&Priced<P>) -> f64, show: fn(&Priced<P>) -> String) -> Column<P> {
    Column { head, key, show: Show::Each(show), best: Best::None, is_optional: true }
}

/// A column of bytes in the report.
macro_rules! bytes_of {
    ($head:literal, $field:ident) => {
        Column {
            head: $head,
            key: |row| row.report.$field as f64,
            show: Show::Bytes(|row| row.report.$field),
            best: Best::Lowest,
            is_optional: false,
        }
    };
}

/// A column of a count in the report.
macro_rules! count_of {
    ($make:ident, $head:literal, $($field:ident).+) => {
        $make($head, |row| row.report.$($field).+ as f64, |row| count(row.report.$($field).+))
    };
}

/// A column of nanoseconds per call.
macro_rules! time_of {
    ($head:literal, $best:ident, $($field:ident).+) => {
        Column {
            head: $head,
            // Rows without a time are never best.
            key: |row| row.time.as_ref().map_or(unknown_time(row), |time| time.$($field).+),
            show: Show::Each(|row| row.time.as_ref().map_or("-".into(), |time| format!("{:.1}", time.$($field).+))),
            best: Best::$best,
            is_optional: true,
        }
    };
}

/// All columns.
fn columns<P: Described>() -> [Column<P>; 26] {
    [
        time_of!("ns/call", Lowest, ns_per_call.median),
        time_of!("ns instr", None, parts_ns_per_call.instructions),
        time_of!("ns memory", None, parts_ns_per_call.memory),
        time_of!("ns kernel", None, parts_ns_per_call.kernel),
        count_of!(low, "faults", faults),
        count_of!(low, "traps", traps),
        count_of!(low, "installs", installs.total),
        count_of!(kind, "4K", installs.by_kind.base_4k),
        count_of!(kind, "mTHP", installs.by_kind.mthp),
        count_of!(kind, "THP", installs.by_kind.thp),
        count_of!(kind, "hugetlb", installs.by_kind.hugetlb),
        count_of!(kind, "zero", installs.by_kind.zero),
        count_of!(kind, "COW", installs.by_kind.cow),
        bytes_of!("RSS peak", rss_bytes_peak),
        bytes_of!("RSS end", rss_bytes_end),
        Column {
            head: "in huge",
            key: huge_share,
            show: Show::Each(|row| format!("{:.0} %", huge_share(row) * 100.0)),
            best: Best::Highest,
            is_optional: false,
        },
        kind(
            "settled RSS",
            |row| row.report.khugepaged_settled.map_or(0.0, |settled| settled.rss_bytes as f64),
            |row| row.report.khugepaged_settled.map_or("-".into(), |settled| bytes(settled.rss_bytes)),
        ),
        kind(
            "settled huge",
            |row| row.report.khugepaged_settled.map_or(0.0, |settled| settled.huge_pages as f64),
            |row| row.report.khugepaged_settled.map_or("-".into(), |settled| count(settled.huge_pages)),
        ),
        kind(
            "unasked",
            |row| row.report.huge_bytes_unasked.unwrap_or(0) as f64,
            |row| row.report.huge_bytes_unasked.map_or("-".into(), |bytes| Size(bytes).to_string()),
        ),
        count_of!(low, "VMAs", vmas_peak),
        Column {
            head: "TLB misses",
            // One more than the misses, so that the column is there if the TLB has none.
            key: |row| figures(row).tlb_misses.map_or(0.0, |misses| misses as f64 + 1.0),
            show: Show::Each(|row| figures(row).tlb_misses.map_or("-".into(), count)),
            best: Best::Lowest,
            is_optional: true,
        },
        low("OS calls", |row| os_calls(row) as f64, |row| count(os_calls(row))),
        low("x floor", floor_ratio, |row| format!("{:.2}", floor_ratio(row))),
        Column {
            head: "copied",
            key: |row| copied_bytes(row) as f64,
            show: Show::Bytes(copied_bytes),
            best: Best::Lowest,
            is_optional: true,
        },
        Column {
            head: "system time",
            key: |row| row.system_time.as_ref().map_or(0.0, SystemTime::rank_s),
            show: Show::Each(|row| row.system_time.as_ref().map_or("-".into(), SystemTime::cell)),
            best: Best::Lowest,
            is_optional: true,
        },
        count_of!(kind, "failed", requests_failed),
    ]
}

/// Columns that a narrow table leaves out, the least important first.
const LEAST: [&str; 16] = [
    "ns instr",
    "ns memory",
    "ns kernel",
    "traps",
    "RSS end",
    "zero",
    "COW",
    "x floor",
    "OS calls",
    "4K",
    "THP",
    "mTHP",
    "hugetlb",
    "faults",
    "VMAs",
    "in huge",
];

/// The sort key of a row without a time: 0 if no profile was given, so that the column is left out.
fn unknown_time<P>(row: &Priced<P>) -> f64 {
    if row.time_skipped.is_some() { f64::INFINITY } else { 0.0 }
}

/// Bytes copied because forked children shared them.
fn copied_bytes<P>(row: &Priced<P>) -> u64 {
    row.report.forks.iter().map(|fork| fork.copied_bytes).sum()
}

fn os_calls<P>(row: &Priced<P>) -> u64 {
    let calls = &row.report.os_calls;
    calls.mmap + calls.munmap + calls.madvise + calls.mremap
}

/// Peak share of RSS in huge pages.
fn huge_share<P>(row: &Priced<P>) -> f64 {
    huge_bytes_peak(&row.report) as f64 / row.report.rss_bytes_peak.max(1) as f64
}

/// Peak RSS divided by the floor.
fn floor_ratio<P>(row: &Priced<P>) -> f64 {
    row.report.rss_bytes_peak as f64 / (row.report.floor_pages.max(1) * PAGE_BYTES) as f64
}

/// Checks `--columns`.
///
/// # Errors
/// A name is of no column, or the result is not printed as a table.
pub fn check(columns: &ColumnsArgs, output: &OutputArgs) -> Result<()> {
    let heads = self::columns::<Policy>().map(|column| column.head);
    let figures: Vec<&str> = ["#", FRONT].into_iter().chain(heads).collect();
    let settings = hksim_designs::all().into_iter().flat_map(|about| about.settings).map(|setting| setting.flag);
    let flags = FLAGS.iter().map(|flag| flag.name).chain(["design"]).chain(settings);
    columns.check(output, &figures, &flags.collect::<Vec<_>>())
}

/// The chosen columns of all tables.
pub fn chosen<P: Described>(sweep: &PricedSweep<P>, head: &Head, columns: &ColumnsArgs) -> String {
    let designs = head.rows_per_trace.max(1);
    let one = |(number, rows): (usize, &[Priced<P>])| {
        let heading = trace_head(rows).into_iter().next().unwrap_or_default();
        (heading, trace_table(rows, number * designs, sweep, columns))
    };
    columns.text(&sweep.rows.chunks(designs).enumerate().map(one).collect::<Vec<_>>())
}

/// All tables, with a legend.
pub fn table<P: Described>(sweep: &PricedSweep<P>, head: &Head) -> String {
    let no_names = ColumnsArgs::default();
    let mut lines = answers::combined(&sweep.answers);
    let mut first = 0;
    for (rows, answer) in sweep.rows.chunks(head.rows_per_trace.max(1)).zip(&sweep.answers.per_trace) {
        lines.extend(trace_head(rows));
        lines.extend(trace_table(rows, first, sweep, &no_names).lines());
        lines.extend(twins(rows, first));
        lines.extend(answers::lines(answer));
        lines.push(String::new());
        first += rows.len();
    }
    lines.push("*  best of its column      P  Pareto front of installs and peak RSS: no row is better in one and as good in the other".into());
    lines.push(
        "in huge: peak bytes in huge pages / peak RSS      x floor: peak RSS / fewest pages that hold the live bytes"
            .into(),
    );
    if sweep.rows.iter().any(|row| row.report.huge_bytes_unasked.is_some()) {
        lines.push("unasked: pages that this kernel gives, though --huge never asks for no huge pages".into());
    }
    if let Some(time) = sweep.rows.iter().find_map(|row| row.time.as_ref()) {
        lines.push(format!("ns/call: {}", time.valid_for));
    }
    let skipped: BTreeSet<&String> = sweep.rows.iter().filter_map(|row| row.time_skipped.as_ref()).collect();
    lines.extend(skipped.into_iter().map(|why| format!("no ns/call: {why}")));
    if let Some(time) = sweep.rows.first().and_then(|row| row.system_time.as_ref()) {
        lines.push("T  Pareto front of system time (its median) and peak RSS".into());
        lines.push(format!("system time: from costs measured on {}, Linux {}", time.machine, time.kernel_release));
    }
    lines.extend(states(sweep.rows.iter().filter_map(|row| row.system_time.as_ref())));
    let asks_pool = |row: &&Priced<P>| RunConfig::of_report(&row.report).word("huge").starts_with("hugetlb");
    if let Some(row) = sweep.rows.iter().find(asks_pool).or(sweep.rows.first()) {
        lines.push(format!("kernel: {}", kernel_text(&row.report, head.modes)));
    }
    text(&lines)
}

fn trace_head<P: Described>(rows: &[Priced<P>]) -> Vec<String> {
    let Some(Priced { report: row, .. }) = rows.first() else { return Vec::new() };
    let trace = &row.trace;
    let file = trace.file.as_ref().map(|file| format!("{file}, ")).unwrap_or_default();
    let missing = missing_text(trace);
    let rules: Vec<&str> = rows.iter().map(|row| row.report.touch.rule.word()).collect();
    let rules = if rules.windows(2).all(|pair| pair[0] == pair[1]) { rules[0] } else { "as listed" };
    let (events, live, floor) = (count(row.events), bytes(row.live_bytes_peak), count(row.floor_pages));
    let mut lines = vec![
        format!("{file}{}", origin_text(&trace.origin)),
        format!(
            "{events} events{missing}, {live} live at the peak (floor {floor} pages); touches: {}",
            touch_rule_text(rules, trace.touch_source)
        ),
    ];
    // If the texts of several rows differ, use the most informative one.
    let most_changed = rows.iter().max_by_key(|row| row.report.memory_policy.installs_thp_denied);
    lines.extend(most_changed.and_then(|row| memory_policy_text(&row.report)));
    // Purge delays differ by row; the first row whose figures depend on times explains the others.
    lines.extend(rows.iter().find_map(|row| made_up_times(&row.report)).map(|text| format!("times {text}")));
    lines
}

/// The table of a trace: the settings and figures that distinguish its rows, and the named ones.
fn trace_table<P: Described>(rows: &[Priced<P>], first: usize, sweep: &PricedSweep<P>, named: &ColumnsArgs) -> Table {
    let points: Vec<Flags> = rows.iter().map(|row| row_flags(&row.report)).collect();
    let flags = some_flags(&points, |flag, varies| varies || named.names(flag));
    let columns: Vec<Column<P>> = self::columns()
        .into_iter()
        .filter(|column| {
            !column.is_optional || named.names(column.head) || rows.iter().any(|row| (column.key)(row) != 0.0)
        })
        .collect();
    let head = ["#"].into_iter().chain(flags.iter().copied()).chain(columns.iter().map(|column| column.head));
    let words: Vec<usize> = (1..=flags.len()).collect();
    let optional = LEAST.iter().filter_map(|name| columns.iter().position(|column| column.head == *name));
    let optional = optional.map(|column| vec![1 + flags.len() + column]).collect();
    let mut table =
        Table::new(head.chain([""]), &words).with_optional(optional).with_joined(1..1 + flags.len(), "design");
    let shown: Vec<Vec<String>> = columns.iter().map(|column| column.show.cells(rows)).collect();
    for (index, (row, point)) in rows.iter().zip(&points).enumerate() {
        let number = [(first + index).to_string()];
        let values = flags.iter().map(|flag| cell(point, flag));
        let figures = columns.iter().zip(&shown).map(|(column, shown)| {
            let mark = if is_best(column, row, rows) { "*" } else { "" };
            format!("{mark}{}", shown[index])
        });
        let on = |front: &[usize], mark| if front.contains(&(first + index)) { mark } else { "" };
        let of_time = sweep.pareto_system_time.as_deref().unwrap_or_default();
        let fronts = on(&sweep.pareto, "P").to_string() + on(of_time, "T");
        table.push(number.into_iter().chain(values).chain(figures).chain([fronts]));
    }
    table
}

/// Whether a row has the best figure of a column in which rows differ. Rows with failed requests are not compared: they
/// did less work.
fn is_best<P>(column: &Column<P>, row: &Priced<P>, rows: &[Priced<P>]) -> bool {
    // Negate where the lowest is best.
    let goodness = |row: &Priced<P>| match column.best {
        Best::Lowest => -(column.key)(row),
        Best::Highest => (column.key)(row),
        Best::None => 0.0,
    };
    let is_served = |row: &&Priced<P>| row.report.requests_failed == 0;
    let own = goodness(row);
    is_served(&row)
        && rows.iter().filter(is_served).any(|other| own > goodness(other))
        && !rows.iter().filter(is_served).any(|other| own < goodness(other))
}

/// One line for each group of rows that are equal in all figures.
fn twins<P: Serialize>(rows: &[Priced<P>], first: usize) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        groups.entry(all_figures(&row.report)).or_default().push(first + index);
    }
    let mut twins: Vec<Vec<usize>> = groups.into_values().filter(|rows| rows.len() > 1).collect();
    twins.sort();
    let names = |rows: &[usize]| rows.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    twins.iter().map(|rows| format!("equal in all figures: {}", names(rows))).collect()
}

/// All simulated figures of a row, without its inputs.
fn all_figures<P: Serialize>(row: &SimReport<P>) -> String {
    let mut value = serde_json::to_value(row).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        for input in ["policy", "touch", "memory_policy", "kernel", "elapsed_s", "placement_digest"] {
            fields.remove(input);
        }
    }
    value.to_string()
}

/// Writes the result.
///
/// # Errors
/// The output cannot be written.
pub fn emit<P: Described>(
    sweep: &PricedSweep<P>,
    output: &OutputArgs,
    columns: &ColumnsArgs,
    head: &Head,
) -> Result<()> {
    output.emit(sweep, &sweep.csv_rows(), || match columns.is_given() {
        true => chosen(sweep, head, columns),
        false => table(sweep, head),
    })
}

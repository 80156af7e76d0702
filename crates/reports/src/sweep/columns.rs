//! The figures of a sweep's rows, as columns of a table.

use hksim_cost_model::SystemTime;
use hksim_explore::described::Described;
use hksim_explore::figures::Figures;
use hksim_explore::priced::{Priced, figures};
use hksim_policy::PAGE_BYTES;
use hksim_policy::units::Size;
use hksim_text::units::{bytes, bytes_apart, count};

use crate::memory_limit;
use crate::simulation::huge_bytes_peak;

/// A figure of a row, as a column.
pub(super) struct Column<P> {
    pub(super) head: &'static str,
    /// The value that rows are compared by.
    pub(super) key: fn(&Priced<P>) -> f64,
    pub(super) show: Show<P>,
    best: Best,
    /// Omit the column if it is 0 in every row.
    pub(super) is_optional: bool,
}

/// How the figures of a column are written.
pub(super) enum Show<P> {
    /// Each figure separately.
    Each(fn(&Priced<P>) -> String),
    /// Bytes, with enough digits to distinguish different ones: a row may be on the Pareto front by a small difference.
    Bytes(fn(&Priced<P>) -> u64),
}

impl<P> Show<P> {
    pub(super) fn cells(&self, rows: &[Priced<P>]) -> Vec<String> {
        match self {
            Show::Each(show) => rows.iter().map(show).collect(),
            Show::Bytes(figure) => bytes_apart(&rows.iter().map(figure).collect::<Vec<u64>>()),
        }
    }
}

/// Which figure of a column is best.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Best {
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

/// A column of what khugepaged can leave at the end, if that was asked for.
macro_rules! khugepaged_of {
    ($head:literal, $part:ident.$field:ident, $show:ident) => {
        kind(
            $head,
            |row| row.report.$part.map_or(0.0, |part| part.$field as f64),
            |row| row.report.$part.map_or("-".into(), |part| $show(part.$field)),
        )
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
pub(super) fn columns<P: Described>() -> [Column<P>; 29] {
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
        khugepaged_of!("settled RSS", khugepaged_settled.rss_bytes, bytes),
        khugepaged_of!("settled huge", khugepaged_settled.huge_pages, count),
        khugepaged_of!("bound RSS", khugepaged_at_end.rss_bytes_max, bytes),
        khugepaged_of!("bound huge", khugepaged_at_end.huge_pages_max, count),
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
        kind(
            "outcome",
            |row| f64::from(u8::from(row.report.memory_limit.is_some())),
            |row| memory_limit::word(row.report.memory_limit.as_ref()).to_string(),
        ),
    ]
}

/// Columns that a narrow table leaves out, the least important first.
pub(super) const LEAST: [&str; 16] = [
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

/// Whether a row has the best figure of a column in which rows differ. Rows with failed requests are not compared: they
/// did less work. Nor are rows that are killed at a memory limit.
pub(super) fn is_best<P>(column: &Column<P>, row: &Priced<P>, rows: &[Priced<P>]) -> bool {
    // Negate where the lowest is best.
    let goodness = |row: &Priced<P>| match column.best {
        Best::Lowest => -(column.key)(row),
        Best::Highest => (column.key)(row),
        Best::None => 0.0,
    };
    let is_served = |row: &&Priced<P>| Figures::of(&row.report).is_served();
    let own = goodness(row);
    is_served(&row)
        && rows.iter().filter(is_served).any(|other| own > goodness(other))
        && !rows.iter().filter(is_served).any(|other| own < goodness(other))
}

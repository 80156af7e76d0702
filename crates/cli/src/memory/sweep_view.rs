//! A sweep over memory recordings as text: one line per setting.

use std::ops::Range;

use super::settings::NamedSetting;
use crate::flags::table::{FLAGS, Subject};
use crate::flags::varied;
use crate::output::columns::{ColumnsArgs, FRONT};
use crate::output::plain;
use crate::output::table::{Lines, Table, text};
use crate::output::units::{bytes, count};
use hksim_cost_model::SystemTime;
use hksim_cost_model::system_time::states;
use hksim_memory_sim::groups::outside;
use hksim_memory_sim::{Addresses, AfterEvents, MemoryRow, hugetlb_shortage};
use hksim_replay::compare::Sample;
use hksim_reports::comparison::residency;
use hksim_reports::memory_limit::{self, range};
use hksim_reports::memory_prediction::{addresses, coverage, head, kernel, stacks};
use hksim_reports::verdict;

/// The text of a row in a column.
type Cell = dyn Fn(&MemoryRow, &NamedSetting) -> String;

/// A column that tells the rows apart.
struct Column {
    name: String,
    cell: Box<Cell>,
}

impl Column {
    fn new(name: &str, cell: impl Fn(&MemoryRow, &NamedSetting) -> String + 'static) -> Self {
        Self { name: name.to_string(), cell: Box::new(cell) }
    }
}

/// All columns that a table may have, besides those of varied flags.
pub const COLUMNS: [&str; 21] = [
    FRONT,
    "allocator",
    "advise",
    "thp-prctl",
    "madv-free",
    "addresses",
    "traps",
    "installs",
    "huge",
    "in huge",
    "peak RSS",
    "splits",
    "page tables",
    "VMAs",
    SETTLED[0],
    SETTLED[1],
    LIMIT[0],
    LIMIT[1],
    BOUND[0],
    BOUND[1],
    SYSTEM_TIME,
];
/// Its first columns tell the rows apart; then come the figures that every row has.
const FIGURES: Range<usize> = 6..14;
const SYSTEM_TIME: &str = "system time";
/// Memory once khugepaged has settled, if a setting asks for it.
const SETTLED: [&str; 2] = ["settled RSS", "settled huge"];
/// What becomes of the process, if a setting has a memory limit.
const LIMIT: [&str; 2] = ["outcome", "least limit"];
/// The most that khugepaged can leave at the end, if a setting asks for it.
const BOUND: [&str; 2] = ["bound RSS", "bound huge"];

/// The flags that may vary.
pub fn flags() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(|flag| flag.subject == Subject::Kernel).map(|flag| flag.name)
}

/// The table of one recording, or of all allocators on one trace.
pub fn rows_table(
    rows: &[MemoryRow],
    settings: &[NamedSetting],
    named: &ColumnsArgs,
    is_on_front: impl Fn(usize) -> bool,
) -> Table {
    let pairs = || rows.iter().zip(settings.iter().cycle());
    let columns = columns(rows, settings, named);
    let has_time = named.names(SYSTEM_TIME) || rows.iter().any(|row| row.system_time.is_some());
    let is_named = |names: [&str; 2]| names.iter().any(|name| named.names(name));
    let has_settled = is_named(SETTLED) || rows.iter().any(|row| row.prediction.khugepaged_settled.is_some());
    let has_bound = is_named(BOUND) || rows.iter().any(|row| row.prediction.khugepaged_at_end.is_some());
    let has_limit = is_named(LIMIT) || rows.iter().any(|row| row.prediction.memory_limit.is_some());
    let has = [has_settled, has_limit, has_bound];
    let ends = [SETTLED, LIMIT, BOUND].into_iter().zip(has).filter(|(_, has)| *has).flat_map(|(names, _)| names);
    let figures = COLUMNS[FIGURES].iter().copied().chain(ends).chain(has_time.then_some(SYSTEM_TIME));
    let names = columns.iter().map(|column| column.name.clone());
    let names = [String::new()].into_iter().chain(names).chain(figures.map(str::to_string));
    let words: Vec<usize> = (0..=columns.len()).collect();
    let mut table = Table::new(names, &words);
    for (number, (row, named)) in pairs().enumerate() {
        let mark = if is_on_front(number) { "*" } else { "" }.to_string();
        let prediction = &row.prediction;
        let (least, most) = (prediction.at_least(), prediction.at_most());
        let figures = [
            range(least.traps, most.traps, count),
            range(least.installs, most.installs, count),
            count(prediction.huge_pages_peak),
            coverage(row),
            range(least.rss_bytes_peak, most.rss_bytes_peak, bytes),
            count(prediction.pmd_splits),
            bytes(prediction.page_table_bytes_peak),
            count(prediction.vmas_peak),
        ];
        let settled = prediction.khugepaged_settled.map(|settled| (settled.rss_bytes, settled.huge_pages));
        let bound = prediction.khugepaged_at_end.map(|most| (most.rss_bytes_max, most.huge_pages_max));
        let memory = |memory: Option<(u64, u64)>| match memory {
            Some((rss_bytes, huge_pages)) => [bytes(rss_bytes), count(huge_pages)],
            None => ["-".to_string(), "-".to_string()],
        };
        let ends = [memory(settled), memory_limit::cells(prediction), memory(bound)];
        let ends = ends.into_iter().zip(has).filter(|(_, has)| *has).flat_map(|(cells, _)| cells);
        let time = row.system_time.as_ref().map(SystemTime::cell);
        let time = has_time.then(|| time.unwrap_or_else(|| "-".to_string()));
        let cells = columns.iter().map(|column| (column.cell)(row, named)).chain(figures).chain(ends).chain(time);
        table.push([mark].into_iter().chain(cells));
    }
    table
}

/// What the rows are about, in one line.
pub fn heading(first: &MemoryRow) -> String {
    match &first.allocator {
        Some(allocator) => {
            let trace = allocator.trace.display().to_string();
            format!("trace      {}: replayed once on each allocator, with huge pages off", plain(&trace))
        }
        None => head(first).into_iter().next().unwrap_or_default(),
    }
}

/// The rows of one recording, or of all allocators on one trace, with what explains them.
pub fn table(rows: &[MemoryRow], settings: &[NamedSetting], is_on_front: impl Fn(usize) -> bool) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let table = rows_table(rows, settings, &ColumnsArgs::default(), is_on_front);
    let mut lines = match &first.allocator {
        Some(_) => vec![heading(first)],
        None => head(first),
    };
    if let [_] = settings {
        lines.push(format!("kernel     {}", kernel(first)));
        lines.extend(addresses(first));
    }
    lines.push(String::new());
    lines.extend(table.lines());
    if let Some(over_events) = over_events(rows, settings) {
        lines.push(String::new());
        lines.extend(over_events.lines());
        lines.push(String::new());
    }
    lines.push("* Pareto front of traps and peak RSS".to_string());
    if first.allocator.is_some() {
        lines.extend(verdict::of_predictions(&named_rows(rows, settings)));
    }
    lines.extend(memory_limit::killed(rows.iter().map(|row| row.prediction.memory_limit.as_ref())));
    lines.extend(memory_limit::unseen_in(rows.iter().filter_map(|row| row.prediction.unseen_writes)));
    let shortage = |row: &MemoryRow| {
        let why = hugetlb_shortage(row.prediction.hugetlb_maps_failed, row.prediction.hugetlb_bytes_failed)?;
        let pool = row.prediction.setting.kernel.hugetlb_pool_pages;
        Some(pool.map_or(why.clone(), |pages| format!("--hugetlb-pool {pages}: {why}")))
    };
    lines.extend(rows.iter().filter_map(shortage));
    lines.extend(states(rows.iter().filter_map(|row| row.system_time.as_ref())));
    if first.allocator.is_none() {
        lines.extend(stacks(rows));
        lines.push(outside(&first.traps_outside));
    }
    text(&lines)
}

/// The rows, by the words in which they differ.
fn named_rows<'a>(rows: &'a [MemoryRow], settings: &[NamedSetting]) -> Vec<(String, &'a MemoryRow)> {
    let columns = columns(rows, settings, &ColumnsArgs::default());
    let name = |row, named| columns.iter().map(|column| (column.cell)(row, named)).collect::<Vec<_>>().join(" ");
    rows.iter().zip(settings.iter().cycle()).map(|(row, named)| (name(row, named), row)).collect()
}

/// RSS of each row at the marks of the replayed trace, or over its events; `None` without a replay.
fn over_events(rows: &[MemoryRow], settings: &[NamedSetting]) -> Option<Table> {
    let columns = columns(rows, settings, &ColumnsArgs::default());
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let sample = |after: &AfterEvents| Sample {
        event: after.event,
        mark: after.mark.clone(),
        live_bytes: after.live_bytes,
        rss_bytes: Some(after.rss_bytes),
    };
    let replays = rows.iter().zip(settings.iter().cycle()).filter(|(row, _)| !row.over_events.is_empty());
    let words = |row, named| columns.iter().map(|column| (column.cell)(row, named)).collect::<Vec<String>>();
    let rows = replays.map(|(row, named)| (words(row, named), row.over_events.iter().map(sample).collect()));
    residency(&names, &rows.collect::<Vec<_>>())
}

/// The columns in which the rows differ, and the named ones.
fn columns(rows: &[MemoryRow], settings: &[NamedSetting], named: &ColumnsArgs) -> Vec<Column> {
    let configs: Vec<_> = settings.iter().map(|named| named.config.clone()).collect();
    let allocator =
        |row: &MemoryRow, _: &NamedSetting| row.allocator.as_ref().map_or("", |label| &label.name).to_string();
    let advise = |_: &MemoryRow, named: &NamedSetting| named.setting.advise.word();
    let prctl = |_: &MemoryRow, named: &NamedSetting| named.setting.thp_prctl.word().to_string();
    let free = |_: &MemoryRow, named: &NamedSetting| named.setting.madv_free.word().to_string();
    let addresses = |row: &MemoryRow, _: &NamedSetting| match row.addresses {
        Addresses::Recorded => "recorded".to_string(),
        Addresses::Modelled => "modelled".to_string(),
    };
    let varied = varied(&configs);
    let flags = flags().filter(|flag| varied.contains(flag) || named.names(flag));
    let flags = flags.map(|flag| Column::new(flag, move |_: &MemoryRow, named: &NamedSetting| named.config.word(flag)));
    let mut columns = vec![Column::new("allocator", allocator)];
    columns.extend(flags);
    columns.extend([Column::new("advise", advise), Column::new("thp-prctl", prctl)]);
    columns.extend([Column::new("madv-free", free), Column::new("addresses", addresses)]);
    let pairs: Vec<_> = rows.iter().zip(settings.iter().cycle()).collect();
    let differs = |column: &Column| {
        let mut cells = pairs.iter().map(|(row, named)| (column.cell)(row, named));
        let first = cells.next();
        cells.any(|cell| Some(cell) != first)
    };
    let has_allocators = rows.iter().any(|row| row.allocator.is_some());
    columns.retain(|column| {
        named.names(&column.name) || if column.name == "allocator" { has_allocators } else { differs(column) }
    });
    columns
}

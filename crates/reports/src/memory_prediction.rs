//! Predictions of memory recordings as text.

use hksim_cost_model::system_time::states;
use hksim_memory_sim::groups::{Groups, outside, outside_table, setting_words};
use hksim_memory_sim::{Addresses, FamilyTotal, MemoryRow, Sample, hugetlb_shortage, losses};
use hksim_memory_trace::{Beginning, Faults};
use hksim_text::plain;
use hksim_text::table::{Table, beside, text as joined};
use hksim_text::units::{self, bytes, count, percent, time};

use crate::memory_limit::{self, range};

/// Maximum characters of a command line.
const COMMAND_SHOWN: usize = 60;

/// Points of time in the table of memory over time.
const TIMES_SHOWN: u64 = 8;

/// The result of one setting, in tables of at most this many columns.
pub fn text(row: &MemoryRow, columns: Option<usize>) -> String {
    let columns = columns.unwrap_or(usize::MAX);
    let mut lines = head(row);
    lines.push(format!("kernel     {}", kernel(row)));
    lines.extend(addresses(row));
    lines.push(String::new());
    lines.extend(beside(&installs(row).fitted(columns), &memory(row).fitted(columns)));
    lines.push(String::new());
    lines.extend(groups(row, columns));
    lines.push(String::new());
    let over_time = over_time(&row.prediction.timeline).map(|table| table.fitted(columns));
    lines.extend(over_time.into_iter().flat_map(|table| table.into_iter().chain([String::new()])));
    lines.extend(hugetlb_shortage(row.prediction.hugetlb_maps_failed, row.prediction.hugetlb_bytes_failed));
    lines.extend(row.system_time.iter().map(|time| format!("system time of these operations: {}", time.text())));
    lines.extend(states(row.system_time.iter()));
    let unseen = row.prediction.unseen_writes.as_ref();
    lines.extend(row.prediction.memory_limit.iter().flat_map(|limit| memory_limit::lines_with(limit, unseen)));
    lines.extend(memory_limit::apart(row.prediction.memory_limit.as_ref(), row.recording.programs_apart));
    lines.extend(unseen.map(memory_limit::unseen));
    lines.extend(row.prediction.family.map(family));
    lines.extend(stack(row));
    lines.push(outside(&row.traps_outside));
    let outside = outside_table(
        &row.traps_outside,
        &row.mapped_outside,
        row.recording.traps_recorded,
        row.prediction.rss_bytes_peak,
    );
    lines.extend(outside.into_iter().flat_map(|table| [String::new()].into_iter().chain(table.fitted(columns))));
    joined(&lines)
}

/// The recording.
pub fn head(row: &MemoryRow) -> Vec<String> {
    let label = &row.recording;
    let mut command = plain(&label.command.join(" ")).into_owned();
    if command.chars().count() > COMMAND_SHOWN {
        command = command.chars().take(COMMAND_SHOWN).collect::<String>() + "...";
    }
    let forked = match label.beginning {
        Beginning::Exec => String::new(),
        Beginning::Fork { parent_pid, .. } => format!(", forked by process {parent_pid}"),
        Beginning::Attached { .. } => format!(", process {} from the middle on", label.pid),
    };
    let faults = match label.visibility.faults {
        Faults::Accesses => "",
        Faults::All => "; reads and writes are not told apart: all count as writes",
        Faults::UserOnly => "; faults in system calls are missing, and reads count as writes",
    };
    let mut lines = vec![
        format!("recording  {}: {command}{forked}", plain(&label.file)),
        format!(
            "           {} first touches of anonymous memory, recorded on Linux {} with huge pages {}{faults}",
            count(label.traps_recorded),
            plain(&label.machine.kernel_release),
            if label.machine.thp_disabled { "off" } else { "on" }
        ),
    ];
    lines.extend(losses(label.lost_events).map(|words| format!("           {words}")));
    lines
}

/// The setting in one line.
pub fn kernel(row: &MemoryRow) -> String {
    let setting = &row.prediction.setting;
    let words = setting_words(setting).into_iter().map(|(flag, value)| format!("--{flag} {value}"));
    format!("Linux {} rules, {}", setting.kernel.rules.version.word(), words.collect::<Vec<_>>().join(" "))
}

/// Where mappings are, if not where the recording has them.
pub fn addresses(row: &MemoryRow) -> Option<String> {
    (row.addresses == Addresses::Modelled).then(|| {
        format!(
            "addresses  modelled: where Linux {} places mappings; what else the program would do there is unknown",
            row.prediction.setting.kernel.rules.version.word()
        )
    })
}

fn installs(row: &MemoryRow) -> Table {
    let prediction = &row.prediction;
    let kinds = prediction.installs.by_kind;
    let mut table = Table::new(["installs by kind", "", ""], &[0]);
    let kinds = [
        ("base_4k", kinds.base_4k),
        ("mthp", kinds.mthp),
        ("thp", kinds.thp),
        ("hugetlb", kinds.hugetlb),
        ("zero", kinds.zero),
        ("cow", kinds.cow),
    ];
    for (name, installs) in kinds {
        table.push([name.to_string(), count(installs), percent(installs, prediction.installs.total)]);
    }
    let (least, most) = (prediction.at_least(), prediction.at_most());
    let figures = [
        ("total", least.installs, most.installs),
        ("faults", least.faults, most.faults),
        ("traps", least.traps, most.traps),
    ];
    for (name, low, high) in figures {
        table.push([name.to_string(), range(low, high, count), String::new()]);
    }
    table
}

fn memory(row: &MemoryRow) -> Table {
    let prediction = &row.prediction;
    let mut table = Table::new(["anonymous memory", ""], &[0]);
    let mut push = |name: &str, value: String| table.push([name.to_string(), value]);
    let (least, most) = (prediction.at_least(), prediction.at_most());
    push("peak RSS", range(least.rss_bytes_peak, most.rss_bytes_peak, bytes));
    push("RSS at the end", range(least.rss_bytes_end, most.rss_bytes_end, bytes));
    if prediction.lazy_free_bytes_end_max > 0 {
        push("of it LazyFree, at most", bytes(prediction.lazy_free_bytes_end_max));
    }
    push("huge pages, peak", count(prediction.huge_pages_peak));
    push("peak RSS in huge pages", coverage(row));
    push("huge pages split", count(prediction.pmd_splits));
    push("page tables, peak", bytes(prediction.page_table_bytes_peak));
    push("VMAs, peak", count(prediction.vmas_peak));
    if let Some(bound) = prediction.khugepaged_bound {
        push("khugepaged, at most", units::of(bound.huge_pages_max, "huge page"));
    }
    if let Some(most) = prediction.khugepaged_at_end {
        push("RSS at the end, khugepaged, at most", bytes(most.rss_bytes_max));
        push("huge pages at the end, at most", count(most.huge_pages_max));
    }
    if let Some(settled) = prediction.khugepaged_settled {
        push("RSS at the end, khugepaged settled", bytes(settled.rss_bytes));
        push("huge pages at the end, settled", count(settled.huge_pages));
    }
    table
}

/// Memory at times that divide the recording equally; `None` if it is as short as one sample.
fn over_time(timeline: &[Sample]) -> Option<Table> {
    let (first, last) = (timeline.first()?, timeline.last()?);
    let times: Vec<u64> = (1..=TIMES_SHOWN).map(|number| last.time_ns * number / TIMES_SHOWN).collect();
    // What holds from a sample on, until the next one.
    let at = |time_ns: u64| timeline.iter().rfind(|sample| sample.time_ns <= time_ns).unwrap_or(first);
    let head = ["over time".to_string()].into_iter().chain(times.iter().map(|&at_ns| time(at_ns)));
    let mut table = Table::new(head, &[0]);
    let mut push = |name: &str, cell: fn(&Sample) -> String| {
        table.push([name.to_string()].into_iter().chain(times.iter().map(|&at_ns| cell(at(at_ns)))));
    };
    push("RSS", |sample| bytes(sample.rss_bytes));
    push("huge pages", |sample| count(sample.huge_pages));
    if last.khugepaged.is_some() {
        push("RSS, khugepaged, at most", |sample| {
            sample.khugepaged.map_or("-".into(), |most| bytes(most.rss_bytes_max))
        });
        push("huge pages, at most", |sample| sample.khugepaged.map_or("-".into(), |most| count(most.huge_pages_max)));
    }
    (timeline.len() > 2).then_some(table)
}

/// What a process and its relatives by fork cost together.
pub fn family(total: FamilyTotal) -> String {
    format!(
        "all {} processes of the fork family: {}, {}; peak RSS {} (shared pages count in each), {}",
        count(total.processes),
        units::of(total.installs, "install"),
        units::of(total.traps, "trap"),
        bytes(total.rss_bytes_peak),
        units::of(total.huge_pages_peak, "huge page")
    )
}

/// Whose memory it is, and why its installs were not huge.
fn groups(row: &MemoryRow, columns: usize) -> Vec<String> {
    let Groups { groups, groups_left_out, reasons, reasons_left_out, advisers, incomplete } = Groups::of(row);
    let mut lines = groups.fitted(columns);
    if groups_left_out > 0 {
        lines.push(format!("and {} with fewer touches (--format json)", units::of(groups_left_out, "group")));
    }
    if let Some(table) = reasons {
        lines.push(String::new());
        lines.extend(table.fitted(columns));
        let more = || format!("and {} (--format json)", units::of(reasons_left_out, "smaller reason"));
        lines.extend((reasons_left_out > 0).then(more));
    }
    lines.extend(advisers.into_iter().flat_map(|table| [String::new()].into_iter().chain(table.fitted(columns))));
    lines.extend(incomplete);
    lines
}

/// The largest share of resident memory in huge pages that both peaks allow.
pub fn coverage(row: &MemoryRow) -> String {
    let prediction = &row.prediction;
    percent(prediction.huge_bytes_peak_max(), prediction.rss_bytes_peak)
}

/// What the stacks cost, which the other figures leave out.
fn stack(row: &MemoryRow) -> Option<String> {
    let stack = row.prediction.stack?;
    let elsewhere = match stack.traps_min..=stack.traps_max {
        same if same.start() == same.end() => String::new(),
        range => format!(" ({} to {} at other random addresses)", count(*range.start()), count(*range.end())),
    };
    Some(format!(
        "main stack, not in these figures: {} recorded, {} predicted{elsewhere}, at most {}, {}",
        units::of(stack.touches, "trap"),
        count(stack.traps),
        bytes(stack.rss_bytes_peak),
        units::of(stack.huge_pages_peak, "huge page")
    ))
}

/// What the stacks cost under the settings of several rows.
pub fn stacks(rows: &[MemoryRow]) -> Option<String> {
    let stacks = || rows.iter().filter_map(|row| row.prediction.stack);
    let recorded = stacks().next()?.touches;
    let (low, high) = (stacks().map(|stack| stack.traps_min).min()?, stacks().map(|stack| stack.traps_max).max()?);
    let predicted = if low == high { count(low) } else { format!("{} to {}", count(low), count(high)) };
    Some(format!(
        "main stack, not in these figures: {} recorded, {predicted} predicted (--format json: `stack`)",
        units::of(recorded, "trap")
    ))
}

//! Predictions of memory recordings as text.

use hksim_cost_model::system_time::states;
use hksim_memory_sim::groups::{Groups, outside, setting_words};
use hksim_memory_sim::{MemoryRow, losses};
use hksim_memory_trace::{Beginning, Faults};
use hksim_policy::HUGE_PAGE_BYTES;

use super::settings::NamedSetting;
use crate::output::plain;
use crate::output::table::{Lines, Table, beside, text};
use crate::output::units::{self, bytes, count, percent};

/// Maximum characters of a command line.
const COMMAND_SHOWN: usize = 60;

/// The result of one setting.
pub fn one(row: &MemoryRow, named: &NamedSetting) -> String {
    let mut lines = head(row);
    lines.push(format!("kernel     {}", kernel(named)));
    lines.push(String::new());
    lines.extend(beside(&installs(row), &memory(row)));
    lines.push(String::new());
    lines.extend(groups(row));
    lines.push(String::new());
    lines.extend(row.system_time.iter().map(|time| format!("system time of these operations: {}", time.text())));
    lines.extend(states(row.system_time.iter()));
    lines.extend(row.prediction.memory_limit.iter().flat_map(hksim_reports::memory_limit::lines));
    lines.extend(stack(row));
    lines.push(outside(&row.traps_outside));
    text(&lines)
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
pub fn kernel(named: &NamedSetting) -> String {
    let words = setting_words(&named.setting).into_iter().map(|(flag, value)| format!("--{flag} {value}"));
    format!("Linux {} rules, {}", named.setting.kernel.rules.version.word(), words.collect::<Vec<_>>().join(" "))
}

fn installs(row: &MemoryRow) -> Vec<String> {
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
    table.push(["total".to_string(), count(prediction.installs.total), String::new()]);
    table.push(["faults".to_string(), count(prediction.faults), String::new()]);
    table.push(["traps".to_string(), count(prediction.traps), String::new()]);
    table.lines()
}

fn memory(row: &MemoryRow) -> Vec<String> {
    let prediction = &row.prediction;
    let mut table = Table::new(["anonymous memory", ""], &[0]);
    let mut push = |name: &str, value: String| table.push([name.to_string(), value]);
    push("peak RSS", bytes(prediction.rss_bytes_peak));
    push("RSS at the end", bytes(prediction.rss_bytes_end));
    push("huge pages, peak", count(prediction.huge_pages_peak));
    push("peak RSS in huge pages", coverage(row));
    push("huge pages split", count(prediction.pmd_splits));
    push("page tables, peak", bytes(prediction.page_table_bytes_peak));
    push("VMAs, peak", count(prediction.vmas_peak));
    if let Some(bound) = prediction.khugepaged_bound {
        push("khugepaged, at most", units::of(bound.huge_pages_max, "huge page"));
    }
    if let Some(settled) = prediction.khugepaged_settled {
        push("RSS at the end, khugepaged settled", bytes(settled.rss_bytes));
        push("huge pages at the end, settled", count(settled.huge_pages));
    }
    table.lines()
}

/// Whose memory it is, and why its installs were not huge.
fn groups(row: &MemoryRow) -> Vec<String> {
    let Groups { groups, groups_left_out, reasons, reasons_left_out, incomplete } = Groups::of(row);
    let mut lines = groups.lines();
    if groups_left_out > 0 {
        lines.push(format!("and {} with fewer touches (--format json)", units::of(groups_left_out, "group")));
    }
    if let Some(table) = reasons {
        lines.push(String::new());
        lines.extend(table.lines());
        let more = || format!("and {} (--format json)", units::of(reasons_left_out, "smaller reason"));
        lines.extend((reasons_left_out > 0).then(more));
    }
    lines.extend(incomplete);
    lines
}

/// The largest share of resident memory in huge pages that both peaks allow.
pub fn coverage(row: &MemoryRow) -> String {
    let prediction = &row.prediction;
    percent((prediction.huge_pages_peak * HUGE_PAGE_BYTES).min(prediction.rss_bytes_peak), prediction.rss_bytes_peak)
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

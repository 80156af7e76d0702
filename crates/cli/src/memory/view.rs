//! Predictions of memory recordings as text.

use std::collections::BTreeMap;

use hksim_linux_mm::{Obstacles, PlaceObstacle, SettingObstacle};
use hksim_memory_sim::{Advise, Outside, RegionPrediction, ThpPrctl, Use};
use hksim_memory_trace::{Beginning, Faults};
use hksim_policy::HUGE_PAGE_BYTES;

use super::row::MemoryRow;
use super::settings::{NamedSetting, advise_word, prctl_word};
use crate::flags::mthp;
use crate::flags::table::thp_word;
use crate::output::plain;
use crate::output::table::{Table, beside, text};
use crate::output::units::{self, bytes, count, percent};

/// Maximum number of groups of mappings listed.
const GROUPS_SHOWN: usize = 12;
/// Maximum number of reasons listed.
const REASONS_SHOWN: usize = 6;
/// Maximum characters of a command line.
const COMMAND_SHOWN: usize = 60;

/// The result of one setting.
pub fn one(row: &MemoryRow, named: &NamedSetting) -> String {
    let mut lines = head(row);
    lines.push(format!("kernel     {}", kernel(named)));
    lines.push(String::new());
    lines.extend(beside(&installs(row), &memory(row)));
    lines.push(String::new());
    lines.extend(groups_table(row));
    lines.extend(reasons(row));
    lines.push(String::new());
    lines.extend(row.system_time.iter().map(|time| format!("system time of these operations: {}", time.text())));
    lines.push(outside(row));
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
    };
    let faults = match label.visibility.faults {
        Faults::Accesses => "",
        Faults::All => "; reads and writes are not told apart: all count as writes",
        Faults::UserOnly => "; faults in system calls are missing, and reads count as writes",
    };
    vec![
        format!("recording  {}: {command}{forked}", plain(&label.file)),
        format!(
            "           {} first touches of anonymous memory, recorded on Linux {} with huge pages off{faults}",
            count(label.traps_recorded),
            plain(&label.machine.kernel_release)
        ),
    ]
}

/// The setting in one line.
pub fn kernel(named: &NamedSetting) -> String {
    let words = setting_words(named).into_iter().map(|(flag, value)| format!("--{flag} {value}"));
    format!("Linux {} rules, {}", named.setting.kernel.rules.version.word(), words.collect::<Vec<_>>().join(" "))
}

/// The setting as flags that differ from the usual ones; always with the THP mode.
pub fn setting_words(named: &NamedSetting) -> Vec<(String, String)> {
    let kernel = &named.setting.kernel;
    let mut words = vec![("thp", thp_word(kernel.thp.global).to_string())];
    if kernel.thp.sizes != mthp::usual() {
        words.push(("mthp", mthp::show(&kernel.thp.sizes)));
    }
    if !kernel.use_zero_page {
        words.push(("zero-page", "off".to_string()));
    }
    if named.setting.advise != Advise::Recorded {
        words.push(("advise", advise_word(named.setting.advise)));
    }
    if named.setting.thp_prctl != ThpPrctl::Recorded {
        words.push(("thp-prctl", prctl_word(named.setting.thp_prctl).to_string()));
    }
    words.into_iter().map(|(flag, value)| (flag.to_string(), value)).collect()
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
    table.lines()
}

/// The largest share of resident memory in huge pages that both peaks allow.
pub fn coverage(row: &MemoryRow) -> String {
    let prediction = &row.prediction;
    percent((prediction.huge_pages_peak * HUGE_PAGE_BYTES).min(prediction.rss_bytes_peak), prediction.rss_bytes_peak)
}

/// Mappings of the same use and a similar size.
#[derive(Default)]
struct Group {
    mappings: u64,
    bytes: u64,
    touches: u64,
    traps: u64,
    huge: u64,
    installed: u64,
    obstacles: BTreeMap<String, u64>,
}

fn groups(row: &MemoryRow) -> Vec<(String, Group)> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for region in &row.prediction.regions {
        let group = groups.entry(group_name(region)).or_default();
        group.mappings += 1;
        group.bytes += region.region.bytes;
        group.touches += region.touches;
        group.traps += region.traps;
        group.huge += region.installs.by_kind.thp + region.installs.by_kind.hugetlb;
        group.installed += region.bytes_installed;
        for obstacle in &region.obstacles {
            *group.obstacles.entry(reason(obstacle.obstacles)).or_default() += obstacle.installs;
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.touches));
    groups
}

/// The name of a region's group. Mappings of mmap are grouped by the power of two of their size.
fn group_name(region: &RegionPrediction) -> String {
    match region.region.usage {
        Use::Heap => "heap (brk)".to_string(),
        Use::ThreadStack => "thread stacks".to_string(),
        Use::ProgramData => "program data (bss)".to_string(),
        Use::Kernel => "made by the kernel".to_string(),
        Use::Mmap => {
            let from = 1u64 << region.region.bytes.max(4096).ilog2();
            format!("mmap of {} to {}", bytes(from).replace(".0", ""), bytes(from.saturating_mul(2)).replace(".0", ""))
        }
    }
}

fn groups_table(row: &MemoryRow) -> Vec<String> {
    let groups = groups(row);
    let mut table = Table::new(["whose memory", "mappings", "size", "touches", "traps", "huge", "installed"], &[0]);
    for (name, group) in groups.iter().take(GROUPS_SHOWN) {
        let Group { mappings, bytes: size, touches, traps, huge, installed, .. } = group;
        table.push([
            name.clone(),
            count(*mappings),
            bytes(*size),
            count(*touches),
            count(*traps),
            count(*huge),
            bytes(*installed),
        ]);
    }
    let mut lines = table.lines();
    if groups.len() > GROUPS_SHOWN {
        lines.push(format!(
            "and {} with fewer touches (--format json)",
            units::of((groups.len() - GROUPS_SHOWN) as u64, "group")
        ));
    }
    lines
}

/// Why installs were not huge.
fn reasons(row: &MemoryRow) -> Vec<String> {
    let mut reasons: Vec<(u64, String, String)> = Vec::new();
    for (name, group) in groups(row) {
        let counts = group.obstacles.into_iter();
        reasons.extend(counts.map(|(reason, installs)| (installs, name.clone(), reason)));
    }
    reasons.sort_by(|a, b| b.cmp(a));
    if reasons.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(["installs", "why not huge", ""], &[1, 2]);
    for (installs, name, reason) in reasons.iter().take(REASONS_SHOWN) {
        table.push([count(*installs), name.clone(), reason.clone()]);
    }
    let mut lines = vec![String::new()];
    lines.extend(table.lines());
    if reasons.len() > REASONS_SHOWN {
        lines.push(format!(
            "and {} (--format json)",
            units::of((reasons.len() - REASONS_SHOWN) as u64, "smaller reason")
        ));
    }
    lines
}

/// Obstacles in words.
fn reason(obstacles: Obstacles) -> String {
    let setting = obstacles.setting.map(|setting| match setting {
        SettingObstacle::DisabledForProcess => "huge pages are off for the process (prctl)",
        SettingObstacle::AdvisedAgainst => "MADV_NOHUGEPAGE",
        SettingObstacle::StackMapping => "a thread's stack (MAP_STACK)",
        SettingObstacle::ModeNever => "THP mode never",
        SettingObstacle::NotAdvised => "THP mode madvise, and no MADV_HUGEPAGE",
    });
    let place = obstacles.place.map(|place| match place {
        PlaceObstacle::NotMapped => "not mapped",
        PlaceObstacle::NotAnonymous => "not anonymous memory",
        PlaceObstacle::NotWritable => "the mapping is not writable",
        PlaceObstacle::MappingTooShort => "the mapping is shorter than 2 MiB at that time",
        PlaceObstacle::MappingUnaligned => "the mapping contains no aligned 2 MiB",
        PlaceObstacle::MappingEdge => "at the edge of the mapping, outside its aligned 2 MiB ranges",
        PlaceObstacle::PagesPresent => "small pages are already in its 2 MiB range",
    });
    match (setting, place, obstacles.place) {
        // Without the setting, an earlier touch would have installed the huge page.
        (Some(setting), Some(_), Some(PlaceObstacle::PagesPresent)) | (Some(setting), None, _) => setting.to_string(),
        (Some(setting), Some(place), _) => format!("{place}; also {setting}"),
        (None, Some(place), _) => place.to_string(),
        (None, None, _) => "a huge page was possible".to_string(),
    }
}

/// Traps outside modelled memory.
pub fn outside(row: &MemoryRow) -> String {
    let total: u64 = row.traps_outside.values().sum();
    let parts: Vec<String> = row
        .traps_outside
        .iter()
        .map(|(outside, traps)| format!("{} {}", outside_words(*outside), count(*traps)))
        .collect();
    format!("not modelled: {} recorded, the same under all settings ({})", units::of(total, "trap"), parts.join(", "))
}

fn outside_words(outside: Outside) -> &'static str {
    match outside {
        Outside::PrivateFile => "private file mappings",
        Outside::Shared => "shared mappings",
        Outside::GrowingStack => "main stack",
        Outside::OtherHugetlb => "hugetlb of other sizes",
        Outside::Special => "vdso and the like",
        Outside::Harness => "the replay's own memory",
        Outside::Unmapped => "no mapping (SIGSEGV)",
    }
}

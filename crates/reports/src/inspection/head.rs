//! What a process is, and what the machine, its control group and its own settings say.

use hksim_inspect::Inspection;
use hksim_inspect::cgroup::Cgroup;
use hksim_inspect::machine::{FolioSize, Machine};
use hksim_linux_mm::ThpDisable;
use hksim_text::units::{bytes, count, of, percent};

/// The facts in order, each with its name; none where it continues the one before.
pub fn facts(inspection: &Inspection) -> Vec<(&'static str, String)> {
    let Inspection { rss_bytes, huge_bytes, anonymous_bytes, .. } = inspection;
    let memory = format!(
        "RSS {}, of it anonymous {}; in huge pages {} ({} of the anonymous memory)",
        bytes(*rss_bytes),
        bytes(*anonymous_bytes),
        bytes(*huge_bytes),
        percent(*huge_bytes, *anonymous_bytes)
    );
    let others = [
        ("LazyFree", inspection.lazy_free_bytes),
        ("swap", inspection.swap_bytes),
        ("hugetlb", inspection.hugetlb_bytes),
        ("locked", inspection.locked_bytes),
        ("page tables", inspection.page_table_bytes),
    ];
    let others: Vec<String> = others.iter().map(|(name, value)| format!("{name} {}", bytes(*value))).collect();
    let own = match inspection.thp_disable {
        ThpDisable::Off => "the process may have huge pages",
        ThpDisable::All => "huge pages are off for the process (PR_SET_THP_DISABLE)",
        ThpDisable::ExceptAdvised => "the process may have them only in advised memory (PR_SET_THP_DISABLE)",
    };
    let mut facts = vec![
        ("process", process(inspection)),
        ("memory", memory),
        ("", others.join(", ")),
        ("THP", format!("{}; {own}", modes(&inspection.machine))),
    ];
    facts.extend(counters(&inspection.machine.sizes).map(|counters| ("since boot", counters)));
    facts.push(("khugepaged", khugepaged(&inspection.machine)));
    facts.push(("cgroup", inspection.cgroup.as_ref().map_or("none accounts its memory".into(), cgroup)));
    facts.extend(inspection.skipped.iter().map(|reason| ("skipped", reason.clone())));
    facts
}

fn process(inspection: &Inspection) -> String {
    let Inspection { pid, program, threads, thread, .. } = inspection;
    let given = thread.as_ref().map(|thread| format!("; {} is the id of its thread {}", thread.id, thread.name));
    format!("{pid} ({program}), {}{}", of(*threads, "thread"), given.unwrap_or_default())
}

/// What happened to huge pages and smaller folios of anonymous memory, of the sizes to which anything happened.
fn counters(sizes: &[FolioSize]) -> Option<String> {
    let of_size = |size: &FolioSize| {
        let counted = [
            (size.fault_alloc, "installed"),
            (size.fault_fallback, "not installed for want of contiguous memory"),
            (size.split, "split"),
        ];
        let counted =
            counted.into_iter().filter_map(|(number, what)| Some((number.filter(|&number| number > 0)?, what)));
        let words: Vec<String> = counted.map(|(number, what)| format!("{} {what}", count(number))).collect();
        (!words.is_empty()).then(|| format!("{}: {}", bytes(size.bytes), words.join(", ")))
    };
    let all: Vec<String> = sizes.iter().filter_map(of_size).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn modes(machine: &Machine) -> String {
    let Some(mode) = &machine.thp_mode else { return "none in this kernel".to_string() };
    let sizes = machine.sizes.iter().filter(|size| size.mode != "never");
    let sizes: Vec<String> = sizes.map(|size| format!("{} {}", bytes(size.bytes), size.mode)).collect();
    let sizes = if sizes.is_empty() { "no size".to_string() } else { sizes.join(", ") };
    format!("mode {mode} ({sizes}), defrag {}", machine.defrag.as_deref().unwrap_or("unknown"))
}

fn khugepaged(machine: &Machine) -> String {
    let known = |value: Option<u64>| value.map_or("?".to_string(), count);
    let khugepaged = &machine.khugepaged;
    format!(
        "{} pages every {} ms, max_ptes_none {}; since boot {} full scans, {} collapsed",
        known(khugepaged.pages_to_scan),
        known(khugepaged.scan_sleep_ms),
        known(khugepaged.max_ptes_none),
        known(khugepaged.full_scans),
        known(khugepaged.pages_collapsed)
    )
}

fn cgroup(group: &Cgroup) -> String {
    let used = group.used_bytes.map_or("use not visible here".to_string(), |used| format!("{} used", bytes(used)));
    let limit = match (group.limit_bytes, &group.limit_path) {
        (Some(limit), Some(path)) if *path != group.path => format!("limit {} (of {path})", bytes(limit)),
        (Some(limit), _) => format!("limit {}", bytes(limit)),
        (None, _) => "no limit".to_string(),
    };
    let high = group.high_bytes.map(|high| format!("throttled from {}", bytes(high)));
    let events = group.events.iter().filter(|(_, number)| **number > 0);
    let events = events.map(|(name, number)| format!("{name} {}", count(*number)));
    let words: Vec<String> = [used, limit].into_iter().chain(high).chain(events).collect();
    format!("{} (version {}): {}", group.path, group.version, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_above_0_are_shown() {
        let size = |bytes, fault_alloc, fault_fallback| FolioSize {
            bytes,
            mode: "always".to_string(),
            fault_alloc,
            fault_fallback,
            split: Some(0),
        };
        assert_eq!(counters(&[size(65_536, Some(0), None)]), None);
        let both = counters(&[size(65_536, Some(1_200), Some(0)), size(2 << 20, Some(3), Some(4))]);
        let expected = "64.0 KiB: 1 200 installed; 2.0 MiB: 3 installed, 4 not installed for want of contiguous memory";
        assert_eq!(both.as_deref(), Some(expected));
    }
}

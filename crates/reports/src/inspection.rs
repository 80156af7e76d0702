//! What memory a running process has, as text.

use std::collections::BTreeMap;

use hksim_inspect::Inspection;
use hksim_inspect::cgroup::Cgroup;
use hksim_inspect::machine::Machine;
use hksim_inspect::region::Region;
use hksim_inspect::verdict::Way;
use hksim_linux_mm::ThpDisable;
use hksim_results::inspect::{Before, InspectResult};
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count, of, percent};

/// Regions that the table shows at most, apart from files; those with less memory are in the JSON.
const REGIONS_SHOWN: usize = 20;
/// The name under which the text sums up all mapped files.
const FILES: &str = "files";

/// A part of the text.
#[derive(Debug)]
pub enum Part {
    /// Lines.
    Lines(Vec<String>),
    /// A table, which is fitted to the screen.
    Table(Table),
}

/// The text of a result, part by part; parts are separated by empty lines.
pub fn parts(result: &InspectResult) -> Vec<Part> {
    let inspection = &result.inspection;
    let shown = shown_regions(inspection);
    let hidden = shown.len().saturating_sub(REGIONS_SHOWN);
    let mut parts = vec![Part::Lines(head(inspection)), Part::Table(regions(&shown))];
    if hidden > 0 {
        let rest: u64 = shown[REGIONS_SHOWN..].iter().map(|region| region.rss_bytes).sum();
        let line =
            format!("and {} with {} (--format json lists them)", of(hidden as u64, "smaller region"), bytes(rest));
        parts.push(Part::Lines(vec![line]));
    }
    parts.push(Part::Table(ranges(inspection)));
    parts.push(Part::Table(obstacles(inspection)));
    parts.push(Part::Lines(remedies(inspection)));
    if let Some(before) = &result.before {
        parts.push(Part::Lines(vec![format!("after {:.1} s:", before.waited_s)]));
        parts.push(Part::Table(changes(inspection, before)));
    }
    parts
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<14}{}", plain(value))
}

fn head(inspection: &Inspection) -> Vec<String> {
    let Inspection { pid, program, threads, rss_bytes, huge_bytes, anonymous_bytes, .. } = inspection;
    let mut lines = vec![
        line("process", &format!("{pid} ({program}), {}", of(*threads, "thread"))),
        line(
            "memory",
            &format!(
                "RSS {}, of it anonymous {}; in huge pages {} ({} of the anonymous memory)",
                bytes(*rss_bytes),
                bytes(*anonymous_bytes),
                bytes(*huge_bytes),
                percent(*huge_bytes, *anonymous_bytes)
            ),
        ),
    ];
    let others = [
        ("LazyFree", inspection.lazy_free_bytes),
        ("swap", inspection.swap_bytes),
        ("hugetlb", inspection.hugetlb_bytes),
        ("locked", inspection.locked_bytes),
        ("page tables", inspection.page_table_bytes),
    ];
    let others: Vec<String> = others.iter().map(|(name, value)| format!("{name} {}", bytes(*value))).collect();
    lines.push(line("", &others.join(", ")));
    let own = match inspection.thp_disable {
        ThpDisable::Off => "the process may have huge pages",
        ThpDisable::All => "huge pages are off for the process (PR_SET_THP_DISABLE)",
        ThpDisable::ExceptAdvised => "the process may have them only in advised memory (PR_SET_THP_DISABLE)",
    };
    lines.push(line("THP", &format!("{}; {own}", modes(&inspection.machine))));
    lines.push(line("khugepaged", &khugepaged(&inspection.machine)));
    lines.push(line("cgroup", &inspection.cgroup.as_ref().map_or("none accounts its memory".into(), cgroup)));
    lines.extend(inspection.skipped.iter().map(|reason| line("skipped", reason)));
    lines
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

/// The regions, with all mapped files as one.
fn shown_regions(inspection: &Inspection) -> Vec<Region> {
    let (files, mut regions): (Vec<Region>, Vec<Region>) =
        inspection.regions.iter().cloned().partition(|region| region.name.starts_with("file "));
    let of_files = files.into_iter().reduce(|mut all, file| {
        all.merge(&file);
        all
    });
    regions.extend(of_files.map(|files| Region { name: FILES.to_string(), ..files }));
    regions.sort_by_key(|region| std::cmp::Reverse((region.rss_bytes + region.hugetlb_bytes, region.bytes)));
    regions
}

fn regions(shown: &[Region]) -> Table {
    let head = ["region", "mappings", "mapped", "RSS", "huge", "LazyFree", "swap", "hugetlb"];
    let mut table = Table::new(head, &[0]).with_optional(vec![vec![7], vec![6], vec![1], vec![5]]);
    for region in shown.iter().take(REGIONS_SHOWN) {
        let Region { bytes: mapped, rss_bytes, huge_bytes, lazy_free_bytes, swap_bytes, hugetlb_bytes, .. } = *region;
        let figures = [mapped, rss_bytes, huge_bytes, lazy_free_bytes, swap_bytes, hugetlb_bytes];
        table.push([region.name.clone(), count(region.mappings)].into_iter().chain(figures.map(bytes)));
    }
    table
}

fn ranges(inspection: &Inspection) -> Table {
    let mut table = Table::new(["huge page", "2 MiB ranges", "small pages in them"], &[0]);
    for ranges in &inspection.ranges {
        table.push([ranges.way.words().to_string(), count(ranges.ranges), bytes(ranges.small_bytes)]);
    }
    table
}

/// What keeps memory out of huge pages, over all regions.
fn obstacles(inspection: &Inspection) -> Table {
    let regions = shown_regions(inspection);
    let mut by_reason: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for region in &regions {
        for hindered in &region.obstacles {
            let (bytes, regions) = by_reason.entry(&hindered.reason).or_default();
            *bytes += hindered.bytes;
            regions.push(&region.name);
        }
    }
    let mut rows: Vec<_> = by_reason.into_iter().collect();
    rows.sort_by_key(|(reason, (bytes, _))| (std::cmp::Reverse(*bytes), *reason));
    let mut table = Table::new(["why not huge", "RSS", "regions"], &[0, 2]);
    for (reason, (small_bytes, regions)) in rows {
        const NAMED: usize = 3;
        let more = regions.len().saturating_sub(NAMED);
        let mut words: Vec<String> = regions.iter().take(NAMED).map(|name| name.to_string()).collect();
        words.extend((more > 0).then(|| format!("{more} more")));
        table.push([reason.to_string(), bytes(small_bytes), words.join(", ")]);
    }
    table
}

fn remedies(inspection: &Inspection) -> Vec<String> {
    let sentences = inspection.remedies.iter().map(|remedy| format!("- {}.", plain(&remedy.sentence)));
    let unseen =
        "- What the allocator holds free, and malloc_trim would return, cannot be seen from outside.".to_string();
    ["What would help:".to_string()].into_iter().chain(sentences).chain([unseen]).collect()
}

/// The figures that differ between the two looks.
fn changes(inspection: &Inspection, before: &Before) -> Table {
    let mut table = Table::new(["", "before", "after"], &[0]);
    let mut row = |name: &str, earlier: u64, later: u64, show: fn(u64) -> String| {
        if earlier != later {
            table.push([name.to_string(), show(earlier), show(later)]);
        }
    };
    let (old, new) = (&before.inspection, inspection);
    row("RSS", old.rss_bytes, new.rss_bytes, bytes);
    row("huge", old.huge_bytes, new.huge_bytes, bytes);
    row("LazyFree", old.lazy_free_bytes, new.lazy_free_bytes, bytes);
    row("swap", old.swap_bytes, new.swap_bytes, bytes);
    row("hugetlb", old.hugetlb_bytes, new.hugetlb_bytes, bytes);
    let ways = |inspection: &Inspection, way| {
        inspection.ranges.iter().find(|ranges| ranges.way == way).map_or(0, |ranges| ranges.ranges)
    };
    for way in Way::ALL {
        row(&format!("ranges: {}", way.words()), ways(old, way), ways(new, way), count);
    }
    let scans = |inspection: &Inspection| inspection.machine.khugepaged.full_scans.unwrap_or(0);
    row("full scans of khugepaged", scans(old), scans(new), count);
    let events = |inspection: &Inspection| inspection.cgroup.clone().map(|group| group.events).unwrap_or_default();
    let earlier = events(old);
    for (name, number) in events(new) {
        row(&format!("cgroup: {name}"), earlier.get(&name).copied().unwrap_or(0), number, count);
    }
    for region in &new.regions {
        let was = old.regions.iter().find(|known| known.name == region.name);
        row(&format!("RSS of {}", region.name), was.map_or(0, |was| was.rss_bytes), region.rss_bytes, bytes);
    }
    for region in old.regions.iter().filter(|was| new.regions.iter().all(|region| region.name != was.name)) {
        row(&format!("RSS of {}", region.name), region.rss_bytes, 0, bytes);
    }
    table
}

//! The tables of an inspection, which the text and a report show.

use std::collections::BTreeMap;

use hksim_inspect::Inspection;
use hksim_inspect::region::{LargeMapping, Region};
use hksim_inspect::verdict::Way;
use hksim_results::inspect::Before;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count};

/// Regions that the table shows at most, apart from files; those with less memory are in the JSON.
pub const REGIONS_SHOWN: usize = 20;
/// The name under which the text sums up all mapped files.
const FILES: &str = "files";

/// The regions, with all mapped files as one.
pub fn shown_regions(inspection: &Inspection) -> Vec<Region> {
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

pub fn regions(shown: &[Region]) -> Table {
    let head = ["region", "mappings", "mapped", "RSS", "huge", "LazyFree", "swap", "hugetlb"];
    let mut table = Table::new(head, &[0]).with_optional(vec![vec![7], vec![6], vec![1], vec![5]]);
    for region in shown.iter().take(REGIONS_SHOWN) {
        let Region { bytes: mapped, rss_bytes, huge_bytes, lazy_free_bytes, swap_bytes, hugetlb_bytes, .. } = *region;
        let figures = [mapped, rss_bytes, huge_bytes, lazy_free_bytes, swap_bytes, hugetlb_bytes];
        table.push([region.name.clone(), count(region.mappings)].into_iter().chain(figures.map(bytes)));
    }
    table
}

pub fn ranges(inspection: &Inspection) -> Table {
    let mut table = Table::new(["huge page", "2 MiB ranges", "small pages in them"], &[0]);
    for ranges in &inspection.ranges {
        table.push([ranges.way.words().to_string(), count(ranges.ranges), bytes(ranges.small_bytes)]);
    }
    table
}

/// What keeps memory out of huge pages, over all regions.
pub fn obstacles(regions: &[Region]) -> Table {
    let mut by_reason: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for region in regions {
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

/// The largest mappings of which only is known that they are anonymous; `None` if there are none.
pub fn largest(inspection: &Inspection) -> Option<Table> {
    let mut table = Table::new(["largest of `anonymous`", "mapped", "RSS", "huge"], &[0]);
    for LargeMapping { address, bytes: mapped, rss_bytes, huge_bytes } in &inspection.largest_anonymous {
        let addresses = format!("{address:x}-{:x}", address.saturating_add(*mapped));
        table.push([addresses].into_iter().chain([mapped, rss_bytes, huge_bytes].map(|size| bytes(*size))));
    }
    (!inspection.largest_anonymous.is_empty()).then_some(table)
}

/// The figures that differ between the two looks; `None` if none does.
pub fn changes(inspection: &Inspection, before: &Before) -> Option<Table> {
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
    (table.rows().count() > 1).then_some(table)
}

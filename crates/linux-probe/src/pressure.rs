//! Machine-wide counters that do not change while memory is plentiful: faults that got no huge page, and pages that
//! reclaim and compaction scanned.

use std::fs;
use std::path::PathBuf;

use crate::sysfs::{THP, number, text};

/// Lines of `/proc/vmstat` that count pages scanned by reclaim and compaction.
pub const SCANS: [&str; 3] = ["pgscan_kswapd ", "pgscan_direct ", "compact_migrate_scanned "];
/// Line of `/proc/vmstat` that counts faults for which no 2 MiB page could be allocated.
pub const FAULT_FALLBACKS: &str = "thp_fault_fallback ";
/// Line of `/proc/vmstat` that counts collapses for which no 2 MiB page could be allocated.
const COLLAPSE_FAILURES: &str = "thp_collapse_alloc_failed ";

/// For each size of huge page, the file that counts faults that could not get a page of that size. There are no such
/// files before Linux 6.10.
pub fn fault_fallback_files() -> impl Iterator<Item = PathBuf> {
    let sizes =
        fs::read_dir(THP).into_iter().flatten().flatten().map(|size| size.path().join("stats/anon_fault_fallback"));
    sizes.filter(|file| file.exists())
}

/// Pages scanned by reclaim and compaction so far.
pub fn reclaim_scanned_pages() -> Option<u64> {
    let vmstat = text("/proc/vmstat")?;
    Some(SCANS.iter().filter_map(|key| counted(&vmstat, key)).sum())
}

/// Failed allocations of huge pages of all sizes so far, including those for collapses. Before Linux 6.10 only 2 MiB
/// pages are counted.
pub fn thp_fallbacks() -> Option<u64> {
    let vmstat = text("/proc/vmstat")?;
    let by_size = fault_fallback_files().filter_map(|file| number(file.to_str()?));
    let faults = by_size.reduce(|sum, fallbacks| sum + fallbacks).or_else(|| counted(&vmstat, FAULT_FALLBACKS))?;
    Some(faults + counted(&vmstat, COLLAPSE_FAILURES).unwrap_or(0))
}

/// The number after `key` in the text of `/proc/vmstat`.
fn counted(vmstat: &str, key: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix(key))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let vmstat = "pgscan_direct_throttle 7\npgscan_direct 5\nthp_fault_fallback_charge 3\nthp_fault_fallback 2";
        assert_eq!(counted(vmstat, SCANS[1]), Some(5));
        assert_eq!(counted(vmstat, FAULT_FALLBACKS), Some(2));
        assert_eq!(counted(vmstat, COLLAPSE_FAILURES), None);
    }

    #[test]
    fn this_kernel_has_the_counters() {
        if !fs::exists(THP).is_ok_and(|exists| exists) {
            return eprintln!("skipped: a kernel without huge pages may have no compaction");
        }
        let vmstat = text("/proc/vmstat").expect("every Linux has /proc/vmstat");
        let missing: Vec<&str> = SCANS.into_iter().filter(|key| counted(&vmstat, key).is_none()).collect();
        assert!(missing.is_empty(), "not in /proc/vmstat: {missing:?}");
    }
}

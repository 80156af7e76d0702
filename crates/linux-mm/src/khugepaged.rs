//! An upper bound on the effects of khugepaged. khugepaged collapses touched ranges at unpredictable times, so the
//! model computes a bound instead of a prediction (R11).

use serde::{Deserialize, Serialize};

use std::ops::Range;

use super::Kernel;
use super::span::{PAGE_BYTES, PMD_PAGES};
use super::state::PageState;

/// What a prediction says about khugepaged's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedWork {
    /// Nothing but a bound ([`Kernel::khugepaged_bound`]).
    #[default]
    None,
    /// Also what it leaves once it has scanned everything ([`Kernel::khugepaged_settled`]).
    Settled,
    /// Also the most that it can leave at the end, at its pace ([`Kernel::khugepaged_at_end`]).
    Bound,
}

/// `/sys/kernel/mm/transparent_hugepage/khugepaged`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Khugepaged {
    /// `pages_to_scan`: pages per scan.
    pub pages_to_scan: u64,
    /// `scan_sleep_millisecs`: milliseconds between two scans.
    pub scan_sleep_ms: u64,
    /// `max_ptes_none`: a PMD range with more absent pages is not collapsed. Zero pages count as absent.
    pub max_ptes_none: u64,
    /// `max_ptes_shared`: a PMD range with more pages that another process maps, too, is not collapsed.
    #[serde(default = "max_ptes_shared_usual")]
    pub max_ptes_shared: u64,
    /// What predictions say about its work. Not a setting of the kernel.
    #[serde(default)]
    pub work: KhugepagedWork,
}

/// The kernel's default, for results without this figure.
fn max_ptes_shared_usual() -> u64 {
    PMD_PAGES / 2
}

impl Default for Khugepaged {
    /// The kernel's defaults: scan 8 PMD ranges every 10 seconds, and collapse those with at least one page present.
    fn default() -> Self {
        Self {
            pages_to_scan: 4096,
            scan_sleep_ms: 10_000,
            max_ptes_none: PMD_PAGES - 1,
            max_ptes_shared: max_ptes_shared_usual(),
            work: KhugepagedWork::None,
        }
    }
}

/// A collapse clears or copies 2 MiB, which takes longer than this.
const COLLAPSE_NS_MIN: u64 = 10_000;

/// PMD ranges of an address space of 47 bits.
const PMDS_MAX: u64 = 1 << 26;

/// An upper bound on khugepaged's effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KhugepagedBound {
    /// Huge pages that khugepaged can create.
    pub huge_pages_max: u64,
    /// Bytes by which resident memory can exceed the prediction.
    pub rss_bytes_extra_max: u64,
    /// Predicted installs that may not happen, because a collapse has already made their pages present.
    pub installs_avoided_max: u64,
}

/// The most that an address space can have at its end if khugepaged has worked at its pace meanwhile. The least is what it
/// has without khugepaged, which may be busy with other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KhugepagedAtEnd {
    /// Resident bytes, hugetlb included.
    pub rss_bytes_max: u64,
    /// Transparent huge pages mapped by PMD entries.
    pub huge_pages_max: u64,
}

impl KhugepagedAtEnd {
    /// The most of both.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self {
            rss_bytes_max: self.rss_bytes_max.max(other.rss_bytes_max),
            huge_pages_max: self.huge_pages_max.max(other.huge_pages_max),
        }
    }
}

impl Kernel {
    /// An upper bound on the effects of khugepaged on this address space within `time_ns` nanoseconds after its first
    /// page. `None` if nothing could be collapsed so far and no mapping can have huge pages, or if khugepaged scans no
    /// pages.
    ///
    /// A scan covers whole PMD ranges, starts immediately on an idle machine, and repeats after each sleep. The bound
    /// ignores scans of other processes and the duration of a collapse, which only reduce the effect. Only ranges with
    /// pages mapped by PTEs are collapsed, so the bound is zero without such pages.
    pub fn khugepaged_bound(&self, time_ns: u64) -> Option<KhugepagedBound> {
        let Khugepaged { max_ptes_none, .. } = self.config().khugepaged;
        let pmds = self.config().khugepaged.pmds_scanned(time_ns);
        let counters = self.counters();
        let finds_any = counters.collapsible_pages + counters.pmd_splits > 0;
        // What was found may be unmapped by now.
        let eligible = finds_any || self.vmas.all().iter().any(|vma| self.may_be_scanned(vma));
        let filled = if finds_any { pmds } else { 0 };
        (eligible && pmds > 0).then(|| {
            let bound = KhugepagedBound::of(filled, max_ptes_none, counters.collapsible_pages);
            // Only smaller folios are made if 2 MiB is off.
            let huge_pages_max = if self.orders.has_pmd() { bound.huge_pages_max } else { 0 };
            KhugepagedBound { huge_pages_max, ..bound }
        })
    }

    /// The most that this address space can have now if khugepaged has worked for `time_ns` nanoseconds. `None` if the
    /// configuration does not ask for it ([`KhugepagedWork::Bound`]).
    ///
    /// Each scan of a range fills at most `max_ptes_none` pages, and what it filled is present until the process drops
    /// it. So at most as many ranges as were scanned have more pages than without khugepaged: those that lack most.
    /// Memory that may have no huge pages at the end counts as memory that never had any.
    pub fn khugepaged_at_end(&self, time_ns: u64) -> Option<KhugepagedAtEnd> {
        let limits = &self.config().khugepaged;
        (limits.work == KhugepagedWork::Bound).then(|| {
            let scanned = limits.pmds_scanned(time_ns);
            let filled_max = scanned.saturating_mul(limits.max_ptes_none.min(PMD_PAGES - 1));
            let (mut absent, mut may_be_huge) = (Vec::new(), 0);
            self.for_each_scanned(|_, vma, table| {
                may_be_huge += u64::from(self.may_be_huge(vma));
                let present = table.ptes.iter().filter(|pte| pte.is_anon()).count() as u64;
                // At least one page was present before a collapse.
                absent.push((PMD_PAGES - present).min(PMD_PAGES - 1));
            });
            absent.sort_unstable_by(|one, other| other.cmp(one));
            absent.truncate(usize::try_from(scanned).unwrap_or(usize::MAX));
            let filled = absent.iter().sum::<u64>().min(filled_max);
            KhugepagedAtEnd {
                rss_bytes_max: self.resident_bytes() + filled * PAGE_BYTES,
                huge_pages_max: self.huge_pages() + may_be_huge.min(absent.len() as u64),
            }
        })
    }

    /// Pages of a range that are mapped by PTEs, zero pages included.
    pub(super) fn small_pages(&self, range: &Range<u64>) -> u64 {
        let runs = self.page_states(range.clone()).into_iter();
        let is_small = |state| matches!(state, PageState::Zero | PageState::Base | PageState::Mthp);
        runs.filter(|run| is_small(run.state)).map(|run| run.pages).sum()
    }
}

impl Khugepaged {
    /// The most PMD ranges that are scanned, and collapsed if they can be, within `time_ns` nanoseconds: a first scan begins
    /// at once. With a sleep of 0 khugepaged works without a rest, and then only the time of a collapse limits it.
    fn pmds_scanned(&self, time_ns: u64) -> u64 {
        let at_once = self.pages_to_scan.div_ceil(PMD_PAGES);
        let scanned = match time_ns.checked_div(self.scan_sleep_ms.saturating_mul(1_000_000)) {
            Some(sleeps) => at_once.saturating_mul(sleeps.saturating_add(1)),
            None if at_once == 0 => 0,
            None => at_once.saturating_add(time_ns / COLLAPSE_NS_MIN),
        };
        scanned.min(PMDS_MAX)
    }
}

impl KhugepagedBound {
    /// `small_installs` is the number of pages mapped by PTEs where a huge page is allowed. At most that many installs
    /// may not happen.
    fn of(huge_pages_max: u64, max_ptes_none: u64, small_installs: u64) -> Self {
        let pages = huge_pages_max.saturating_mul(max_ptes_none.min(PMD_PAGES - 1));
        let installs_avoided_max = pages.min(small_installs);
        Self { huge_pages_max, rss_bytes_extra_max: pages.saturating_mul(PAGE_BYTES), installs_avoided_max }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::write;
    use crate::{
        Access, Advice, Content, Kernel, KernelConfig, Khugepaged, KhugepagedWork, MapFlags, PMD_PAGES, ThpConfig,
        ThpDisable, ThpMode,
    };

    /// (seconds, PMD ranges scanned by then). By its documentation khugepaged scans 4096 pages immediately and then
    /// every 10 s.
    const WITHIN: [(u64, u64); 4] = [(0, 8), (9, 8), (10, 16), (25, 24)];

    #[test]
    fn the_bound_counts_scans() {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        assert_eq!(kernel.khugepaged_bound(1), None, "nothing is advised");
        // Written before the advice, so that a PTE maps it.
        kernel.touch(3, Access::Write(Content::NonZero)).unwrap();
        kernel.advise(0..1024, Advice::HugePage).result.unwrap();
        for (seconds, huge_pages) in WITHIN {
            let bound = kernel.khugepaged_bound(seconds * 1_000_000_000).unwrap();
            assert_eq!((bound.huge_pages_max, bound.installs_avoided_max), (huge_pages, 1));
            assert_eq!(bound.rss_bytes_extra_max, huge_pages * 511 * 4096);
        }
    }

    #[test]
    fn without_a_rest_the_time_of_a_collapse_is_the_bound() {
        let bound = |pages_to_scan, scan_sleep_ms, time_ns| {
            let khugepaged = Khugepaged { pages_to_scan, scan_sleep_ms, ..Khugepaged::default() };
            let mut kernel = Kernel::new(KernelConfig { khugepaged, ..KernelConfig::default() });
            kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
            kernel.touch(3, Access::Write(Content::NonZero)).unwrap();
            kernel.advise(0..1024, Advice::HugePage).result.unwrap();
            kernel.khugepaged_bound(time_ns).map(|bound| bound.huge_pages_max)
        };
        // 2 MiB in 10 us would be 210 GB/s.
        assert_eq!([0, 9_999, 1_000_000_000].map(|time_ns| bound(4096, 0, time_ns)), [8, 8, 100_008].map(Some));
        assert_eq!(bound(0, 0, 1_000_000_000), None, "it scans nothing");
        let address_space = Some((1 << 47) / (2 << 20));
        assert_eq!([(u64::MAX, 1), (4096, 0)].map(|(pages, sleep)| bound(pages, sleep, u64::MAX)), [address_space; 2]);
    }

    /// Three ranges of 3, 0 and 500 pages, and one of 400 that may not be huge.
    #[test]
    fn at_the_end_the_ranges_that_lack_most_are_filled() {
        let mut config = KernelConfig { thp: ThpConfig::new(ThpMode::Always), ..KernelConfig::default() };
        config.khugepaged = Khugepaged { pages_to_scan: 512, work: KhugepagedWork::Bound, ..config.khugepaged };
        let mut kernel = Kernel::new(config);
        kernel.map(0..4 * PMD_PAGES, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(0..4 * PMD_PAGES, Advice::NoHugePage).result.unwrap();
        write(&mut kernel, (0..3).chain(1024..1524).chain(1536..1936));
        kernel.advise(0..3 * PMD_PAGES, Advice::HugePage).result.unwrap();
        let at_end = |kernel: &Kernel, seconds: u64| {
            let at_end = kernel.khugepaged_at_end(seconds * 1_000_000_000).unwrap();
            ((at_end.rss_bytes_max - kernel.resident_bytes()) / 4096, at_end.huge_pages_max)
        };
        // One range at once, and one more every 10 s.
        assert_eq!([9, 10, 100].map(|seconds| at_end(&kernel, seconds)), [(509, 1), (521, 2), (521, 2)]);
        // A page that is dropped later: its range had 512 in between.
        kernel.advise(0..2, Advice::DontNeed).result.unwrap();
        assert_eq!(at_end(&kernel, 0), (511, 1));
        kernel.config.khugepaged.max_ptes_none = 100;
        assert_eq!(at_end(&kernel, 0), (100, 1), "a scan fills no more");
    }

    #[test]
    fn without_small_pages_there_is_nothing_to_collapse() {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(0..1024, Advice::HugePage).result.unwrap();
        write(&mut kernel, [3, 700]);
        let figures = |kernel: &Kernel| {
            let bound = kernel.khugepaged_bound(1).unwrap();
            (bound.huge_pages_max, bound.installs_avoided_max)
        };
        assert_eq!(figures(&kernel), (0, 0));
        // khugepaged can fill the gap in a split huge page, so page 10 could already be present.
        kernel.advise(10..11, Advice::DontNeed).result.unwrap();
        assert_eq!(figures(&kernel), (8, 0));
        kernel.touch(10, Access::Write(Content::NonZero)).unwrap();
        assert_eq!(figures(&kernel), (8, 1));
    }

    #[test]
    fn memory_that_was_unmapped_counts() {
        let mut kernel = Kernel::new(KernelConfig::default());
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        kernel.touch(3, Access::Write(Content::NonZero)).unwrap();
        kernel.advise(0..1024, Advice::HugePage).result.unwrap();
        kernel.unmap(0..1024).unwrap();
        assert_eq!(kernel.khugepaged_bound(1).map(|bound| bound.huge_pages_max), Some(8));
    }

    #[test]
    fn pages_from_before_prctl_allowed_huge_pages_count() {
        let mut kernel = Kernel::new(KernelConfig { thp: ThpConfig::new(ThpMode::Always), ..KernelConfig::default() });
        kernel.disable_thp(ThpDisable::All);
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        kernel.touch(3, Access::Write(Content::NonZero)).unwrap();
        assert_eq!(kernel.khugepaged_bound(1), None);
        kernel.disable_thp(ThpDisable::Off);
        let bound = kernel.khugepaged_bound(1).unwrap();
        assert_eq!((bound.huge_pages_max, bound.installs_avoided_max), (8, 1));
    }

    #[test]
    fn without_thp_there_is_no_bound() {
        let mut kernel = Kernel::new(KernelConfig { thp: ThpConfig::new(ThpMode::Never), ..KernelConfig::default() });
        kernel.map(0..1024, MapFlags::READ_WRITE).result.unwrap();
        kernel.advise(0..1024, Advice::HugePage).result.unwrap();
        assert_eq!(kernel.khugepaged_bound(1_000_000_000_000), None);
    }
}

//! The kernel's work besides making pages present: pages freed, collapsed and moved.

use hksim_policy::memory::Advice;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use hksim_linux_mm::{InstallKind, InstallRun, PAGE_BYTES, PMD_PAGES, PageState, StateRun};

/// Present pages of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Pages mapped by a PTE, or part of a huge page that the range covers only in part.
    pub pages: u64,
    /// Whole huge pages.
    pub huge: u64,
    /// Pages of the hugetlb pool.
    pub hugetlb: u64,
}

impl Present {
    /// Counts the present pages of runs of page states.
    pub fn of(runs: impl Iterator<Item = StateRun>) -> Present {
        let mut present = Present::default();
        for run in runs {
            let whole = match run.state {
                PageState::Thp => {
                    let first = run.first_page.div_ceil(PMD_PAGES);
                    ((run.first_page + run.pages) / PMD_PAGES).saturating_sub(first)
                }
                _ => 0,
            };
            match run.state {
                PageState::Base | PageState::Mthp => present.pages += run.pages,
                PageState::Thp => present.pages += run.pages - whole * PMD_PAGES,
                PageState::Hugetlb => present.hugetlb += run.pages / PMD_PAGES,
                PageState::None | PageState::Zero | PageState::HugeZero => {}
            }
            present.huge += whole;
        }
        present
    }
}

/// Histogram (log2) of the number of events between an install and the previous one. The first class counts installs in
/// the same event as the previous install. The n-th class after it counts installs 2^(n-1) to 2^n - 1 events later. The
/// last class includes all longer distances. The distance matters because the program's own work evicts the kernel's
/// fault path from the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSpacing([u64; FaultSpacing::NUMBER]);

/// One bucket of [`FaultSpacing`] in JSON. Empty buckets are omitted.
#[derive(Serialize, Deserialize)]
struct SpacingBucket {
    /// Lower bound of the events since the previous install.
    events_min: u64,
    /// Number of installs.
    installs: u64,
}

impl Serialize for FaultSpacing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.iter().filter(|&(_, installs)| installs > 0);
        serializer.collect_seq(filled.map(|(events_min, installs)| SpacingBucket { events_min, installs }))
    }
}

impl<'de> Deserialize<'de> for FaultSpacing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spacing = FaultSpacing::default();
        for SpacingBucket { events_min, installs } in Vec::deserialize(deserializer)? {
            let class = spacing.iter().position(|(bound, _)| bound == events_min);
            let class =
                class.ok_or_else(|| D::Error::custom(format!("{events_min} is not a bound of fault_spacing")))?;
            spacing.0[class] = installs;
        }
        Ok(spacing)
    }
}

impl FaultSpacing {
    const NUMBER: usize = 19;

    pub(crate) fn add(&mut self, events: u64) {
        let class = events.checked_ilog2().map_or(0, |log| log as usize + 1);
        if let Some(installs) = self.0.get_mut(class.min(FaultSpacing::NUMBER - 1)) {
            *installs += 1;
        }
    }

    /// For each class, the lower bound of events since the previous install, and the number of installs.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().map(|(n, &installs)| ((1 << n) >> 1, installs))
    }
}

/// Histogram of refaults: installs of memory that the process had before. Each refault is classified by the amount of
/// memory that was returned to the kernel and not refaulted since. The classes are less than 8 MiB, 8 to 16 MiB, and so
/// on by doubling, up to 128 MiB and more. Memory that was returned last is refaulted first. The amount is therefore a
/// lower bound for the memory that passed through the caches in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refaults([u64; Refaults::NUMBER]);

/// One bucket of [`Refaults`] in JSON. Empty buckets are omitted.
#[derive(Serialize, Deserialize)]
struct RefaultBucket {
    /// Lower bound of the returned memory.
    returned_bytes_min: u64,
    /// Number of refaults.
    installs: u64,
}

impl Serialize for Refaults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.0.iter().enumerate().filter(|&(_, &installs)| installs > 0);
        let bucket = |(class, &installs)| RefaultBucket { returned_bytes_min: Refaults::bytes_min(class), installs };
        serializer.collect_seq(filled.map(bucket))
    }
}

impl<'de> Deserialize<'de> for Refaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut refaults = Refaults::default();
        for RefaultBucket { returned_bytes_min, installs } in Vec::deserialize(deserializer)? {
            let class = (0..Refaults::NUMBER).find(|&class| Refaults::bytes_min(class) == returned_bytes_min);
            let class =
                class.ok_or_else(|| D::Error::custom(format!("{returned_bytes_min} is not a bound of refaults")))?;
            refaults.0[class] = installs;
        }
        Ok(refaults)
    }
}

impl Refaults {
    const NUMBER: usize = 6;
    /// Upper bound of the first class.
    const FIRST_BYTES: u64 = 8 << 20;

    fn add(&mut self, given_back_bytes: u64) {
        let class = (given_back_bytes / Refaults::FIRST_BYTES).checked_ilog2().map_or(0, |log| log as usize + 1);
        if let Some(installs) = self.0.get_mut(class.min(Refaults::NUMBER - 1)) {
            *installs += 1;
        }
    }

    /// Lower bound of a class.
    fn bytes_min(class: usize) -> u64 {
        if class == 0 { 0 } else { Refaults::FIRST_BYTES << (class - 1) }
    }

    /// For each class, the middle of its range of returned bytes (for the last class, as if it ended at double its
    /// start), and the number of installs.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let middle = |class| (Refaults::bytes_min(class) + (Refaults::FIRST_BYTES << class)) / 2;
        self.0.iter().enumerate().map(move |(class, &installs)| (middle(class), installs))
    }

    /// The number of refaults.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Refaults by kind of install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefaultsByKind {
    /// Single pages, by accesses.
    pub base_4k: Refaults,
    /// Single pages, by populating calls.
    pub base_4k_populated: Refaults,
    /// Folios larger than a page and smaller than a huge page.
    pub mthp: Refaults,
    /// Huge pages.
    pub thp: Refaults,
    /// Pages of the hugetlb pool.
    pub hugetlb: Refaults,
}

impl RefaultsByKind {
    /// Records installs. `resident_bytes` is the resident memory before the first install; `peak_bytes` is the peak so
    /// far.
    pub(crate) fn add(&mut self, run: InstallRun, by_call: bool, resident_bytes: u64, peak_bytes: u64) {
        let refaults = match run.kind {
            InstallKind::Base4k if by_call => &mut self.base_4k_populated,
            InstallKind::Base4k => &mut self.base_4k,
            InstallKind::Mthp => &mut self.mthp,
            InstallKind::Thp => &mut self.thp,
            InstallKind::Hugetlb => &mut self.hugetlb,
            InstallKind::Zero | InstallKind::Cow => return,
        };
        let each_bytes = run.pages * PAGE_BYTES / run.installs.max(1);
        for number in 0..run.installs {
            let given_back_bytes = peak_bytes.saturating_sub(resident_bytes + number * each_bytes);
            if given_back_bytes >= each_bytes {
                refaults.add(given_back_bytes);
            }
        }
    }
}

/// Counters of kernel work. Pages are 4 KiB unless called huge (2 MiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOperations {
    /// Single pages installed by populating calls.
    pub populated_pages: u64,
    /// Pages in folios larger than a page and smaller than a huge page, however they were installed.
    pub mthp_pages: u64,
    /// PMD ranges that `MADV_COLLAPSE` made huge.
    pub collapsed_pmds: u64,
    /// Pages that were present in those ranges.
    pub collapsed_present_pages: u64,
    /// Pages dropped by `MADV_DONTNEED`.
    pub madv_dontneed_pages: u64,
    /// Huge pages dropped whole by `MADV_DONTNEED`.
    pub madv_dontneed_huge_pages: u64,
    /// Pages marked by `MADV_FREE`.
    pub madv_free_pages: u64,
    /// Of those, pages that were already marked: the kernel moves a page to another list only once.
    pub madv_free_repeated_pages: u64,
    /// Huge pages marked whole by `MADV_FREE`.
    pub madv_free_huge_pages: u64,
    /// Of those, huge pages that were already marked.
    pub madv_free_repeated_huge_pages: u64,
    /// Pages removed by `munmap`, or by a mapping over them.
    pub unmapped_pages: u64,
    /// Huge pages removed that way.
    pub unmapped_huge_pages: u64,
    /// hugetlb pages removed that way, or by `MADV_DONTNEED`.
    pub unmapped_hugetlb_pages: u64,
    /// Single pages that `mremap` moved, in PTE tables of 512 pages, rounded up for each call.
    pub mremap_pte_tables: u64,
    /// Huge pages that `mremap` moved.
    pub mremap_huge_pages: u64,
    /// Page tables allocated, except those deposited with a huge page.
    pub page_tables_allocated: u64,
    /// Spacing of the installs by accesses, except huge pages.
    pub fault_spacing: FaultSpacing,
    /// Spacing of the installs of huge pages and hugetlb pages, by accesses and calls.
    pub huge_fault_spacing: FaultSpacing,
    /// Installs of memory that the process had before.
    pub refaults: RefaultsByKind,
}

impl PageOperations {
    /// Counts an `madvise` of a range. `marked` returns how many of its pages and huge pages were already marked free.
    pub(crate) fn advised(&mut self, advice: Advice, present: Present, marked: impl FnOnce() -> (u64, u64)) {
        match advice {
            Advice::DontNeed => {
                self.madv_dontneed_pages += present.pages;
                self.madv_dontneed_huge_pages += present.huge;
                self.unmapped_hugetlb_pages += present.hugetlb;
            }
            Advice::Free => {
                self.madv_free_pages += present.pages;
                self.madv_free_huge_pages += present.huge;
                let (pages, huge) = marked();
                self.madv_free_repeated_pages += pages;
                self.madv_free_repeated_huge_pages += huge;
            }
            Advice::Collapse => self.collapsed_present_pages += present.pages,
            Advice::HugePage | Advice::NoHugePage | Advice::PopulateRead | Advice::PopulateWrite => {}
        }
    }

    /// Counts the pages of a range that is unmapped or mapped over.
    pub(crate) fn unmapped(&mut self, present: Present) {
        self.unmapped_pages += present.pages;
        self.unmapped_huge_pages += present.huge;
        self.unmapped_hugetlb_pages += present.hugetlb;
    }

    /// Counts the pages of a range that is moved.
    pub(crate) fn moved(&mut self, present: Present) {
        self.mremap_pte_tables += present.pages.div_ceil(PMD_PAGES);
        self.mremap_huge_pages += present.huge;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(kind: InstallKind, pages: u64, installs: u64) -> InstallRun {
        InstallRun { kind, first_page: 0, pages, installs }
    }

    #[test]
    fn refaults_are_classified_by_the_returned_amount() {
        const MIB: u64 = 1 << 20;
        let mut refaults = Refaults::default();
        [1, 7 * MIB, 8 * MIB, 15 * MIB, 16 * MIB, 127 * MIB, 128 * MIB, 1 << 50]
            .into_iter()
            .for_each(|bytes| refaults.add(bytes));
        let classes = [(4 * MIB, 2), (12 * MIB, 2), (24 * MIB, 1), (48 * MIB, 0), (96 * MIB, 1), (192 * MIB, 2)];
        assert!(refaults.iter().eq(classes), "{refaults:?}");
        assert_eq!(refaults.total(), 8);
    }

    #[test]
    fn memory_above_the_peak_is_new() {
        const MIB: u64 = 1 << 20;
        let mut refaults = RefaultsByKind::default();
        // Seven of ten huge pages are resident. Of four more, three are refaults, after 6, 4 and 2 MiB of returned
        // memory.
        refaults.add(run(InstallKind::Thp, 4 * PMD_PAGES, 4), true, 14 * MIB, 20 * MIB);
        assert_eq!(refaults.thp.total(), 3);
        refaults.add(run(InstallKind::Base4k, 2, 2), false, 20 * MIB - PAGE_BYTES, 20 * MIB);
        refaults.add(run(InstallKind::Base4k, 2, 2), true, 3 * MIB, 20 * MIB);
        refaults.add(run(InstallKind::Zero, 1, 1), false, 0, 20 * MIB);
        assert_eq!([refaults.base_4k.total(), refaults.base_4k_populated.total(), refaults.mthp.total()], [1, 2, 0]);
        assert!(
            refaults.base_4k_populated.iter().any(|class| class == (24 * MIB, 2)),
            "17 MiB were returned: {refaults:?}"
        );
        refaults.add(run(InstallKind::Hugetlb, PMD_PAGES, 1), false, 19 * MIB, 20 * MIB);
        assert_eq!(refaults.hugetlb.total(), 0, "half of it is new");
    }

    #[test]
    fn only_whole_huge_pages_count_as_huge() {
        let run = |first_page, pages, state| StateRun { first_page, pages, state };
        let runs = [
            run(500, 12, PageState::Base),
            run(512, 1024 + 100, PageState::Thp),
            run(1636, 10, PageState::Zero),
            run(2048, 1024, PageState::Hugetlb),
        ];
        assert_eq!(Present::of(runs.into_iter()), Present { pages: 112, huge: 2, hugetlb: 2 });
        let inside = Present::of([run(600, 16, PageState::Thp)].into_iter());
        assert_eq!(inside, Present { pages: 16, huge: 0, hugetlb: 0 });
    }
}

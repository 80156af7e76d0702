//! What the kernel had to do beside making pages present: what it took back, collapsed and moved.

use hksim_policy::memory::Advice;
use serde::Serialize;

use crate::kernel::{BLOCK_PAGES, PageState, StateRun};

/// Present pages of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Pages with an entry of their own, or in a part of a huge page.
    pub pages: u64,
    /// Whole huge pages.
    pub huge: u64,
    /// Pages of the hugetlb pool.
    pub hugetlb: u64,
}

impl Present {
    /// Of runs of states.
    pub fn of(runs: impl Iterator<Item = StateRun>) -> Present {
        let mut present = Present::default();
        for run in runs {
            let whole = match run.state {
                PageState::Thp => {
                    let first = run.first_page.div_ceil(BLOCK_PAGES);
                    ((run.first_page + run.pages) / BLOCK_PAGES).saturating_sub(first)
                }
                _ => 0,
            };
            match run.state {
                PageState::Base | PageState::Mthp => present.pages += run.pages,
                PageState::Thp => present.pages += run.pages - whole * BLOCK_PAGES,
                PageState::Hugetlb => present.hugetlb += run.pages / BLOCK_PAGES,
                PageState::None | PageState::Zero | PageState::HugeZero => {}
            }
            present.huge += whole;
        }
        present
    }
}

/// Installs by how long the one before was ago: the first number counts those of the same event, the n-th one
/// behind it those after 2^(n-1) to 2^n - 1 events, the last one those after more, too. The kernel's way of a fault leaves the caches while the program does other things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Gaps([u64; Gaps::NUMBER]);

impl Gaps {
    const NUMBER: usize = 15;

    pub(crate) fn add(&mut self, events: u64) {
        let class = events.checked_ilog2().map_or(0, |log| log as usize + 1);
        if let Some(installs) = self.0.get_mut(class.min(Gaps::NUMBER - 1)) {
            *installs += 1;
        }
    }

    /// The least number of events since the install before, and how many installs were that late, for each class.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().map(|(n, &installs)| ((1 << n) >> 1, installs))
    }
}

/// Counts of work. Pages are 4 KiB unless they are called huge (2 MiB).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelWork {
    /// Single pages that a populating call made.
    pub populated_pages: u64,
    /// Pages in folios of a size between a page and a huge page, however they were made.
    pub folio_pages: u64,
    /// Blocks that `MADV_COLLAPSE` made huge.
    pub collapsed_blocks: u64,
    /// Pages that were present in them.
    pub collapsed_pages: u64,
    /// Pages that `MADV_DONTNEED` took.
    pub dontneed_pages: u64,
    /// Huge pages that it took whole.
    pub dontneed_huge: u64,
    /// Pages that `MADV_FREE` marked.
    pub freed_pages: u64,
    /// Huge pages that it marked whole.
    pub freed_huge: u64,
    /// Pages that `munmap`, or a map over them, took.
    pub unmapped_pages: u64,
    /// The same of huge pages.
    pub unmapped_huge: u64,
    /// The same of pages of the hugetlb pool.
    pub unmapped_hugetlb: u64,
    /// Blocks in single pages that `mremap` moved.
    pub moved_tables: u64,
    /// Huge pages that it moved.
    pub moved_huge: u64,
    /// Page tables made, those that come with a huge page left out.
    pub page_tables: u64,
    /// Installs by accesses, huge pages left out.
    pub gaps: Gaps,
    /// Installs of huge pages and of pages of the hugetlb pool, by accesses and by calls.
    pub huge_gaps: Gaps,
}

impl KernelWork {
    /// A range is advised.
    pub(crate) fn advised(&mut self, advice: Advice, present: Present) {
        match advice {
            Advice::DontNeed => {
                self.dontneed_pages += present.pages;
                self.dontneed_huge += present.huge;
                self.unmapped_hugetlb += present.hugetlb;
            }
            Advice::Free => {
                self.freed_pages += present.pages;
                self.freed_huge += present.huge;
            }
            Advice::Collapse => self.collapsed_pages += present.pages,
            Advice::HugePage | Advice::PopulateRead | Advice::PopulateWrite => {}
        }
    }

    /// A range is unmapped, or mapped anew.
    pub(crate) fn unmapped(&mut self, present: Present) {
        self.unmapped_pages += present.pages;
        self.unmapped_huge += present.huge;
        self.unmapped_hugetlb += present.hugetlb;
    }

    /// A range is moved.
    pub(crate) fn moved(&mut self, present: Present) {
        self.moved_tables += present.pages.div_ceil(BLOCK_PAGES);
        self.moved_huge += present.huge;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

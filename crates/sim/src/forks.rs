//! The cost of a forked child for its parent: pages that a write copies because parent and child share them.

use std::collections::BTreeMap;

use hksim_linux_mm::{Kernel, PMD_PAGES, PageState, StateRun};
use serde::{Deserialize, Serialize};

/// Present pages of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
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

/// One fork.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkReport {
    /// Number of events before the fork.
    pub from_event: u64,
    /// Number of events before the child's exit; absent if it outlives the trace.
    pub until_event: Option<u64>,
    /// Shared pages mapped by PTEs.
    pub shared_pages: u64,
    /// Shared huge pages.
    pub shared_huge_pages: u64,
    /// Shared hugetlb pages.
    pub shared_hugetlb_pages: u64,
    /// Bytes of page tables copied for the child.
    pub page_table_bytes: u64,
    /// Writes that copied a page. With several children alive, they are counted for the one forked last.
    pub cow_copies: u64,
    /// Bytes copied: the extra memory used while the child lives.
    pub copied_bytes: u64,
    /// Huge pages split by these writes.
    pub pmd_splits: u64,
    /// Faults that copied nothing, because the child had exited.
    pub cow_reuses: u64,
}

/// The living children, and all forks so far.
#[derive(Clone, Default)]
pub(crate) struct Forks {
    /// The living children, by the index of their report.
    children: BTreeMap<usize, Kernel>,
    reports: Vec<ForkReport>,
}

impl Forks {
    /// Whether there was any fork.
    pub(crate) fn any(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Whether a child is alive.
    pub(crate) fn has_child(&self) -> bool {
        !self.children.is_empty()
    }

    pub(crate) fn begin(&mut self, child: Kernel, shared: Present, event: u64) {
        let number = self.reports.len();
        self.reports.push(ForkReport {
            from_event: event,
            shared_pages: shared.pages,
            shared_huge_pages: shared.huge,
            shared_hugetlb_pages: shared.hugetlb,
            page_table_bytes: child.page_table_bytes(),
            ..ForkReport::default()
        });
        self.children.insert(number, child);
    }

    /// Child number `child` exits.
    pub(crate) fn end(&mut self, child: u32, event: u64) {
        let number = child as usize;
        self.children.remove(&number);
        if let Some(report) = self.reports.get_mut(number) {
            report.until_event = Some(event);
        }
    }

    /// Adds the cost of a write after a fork to a report: to that of the living child that was forked last, or to that
    /// of the last fork if no child is alive.
    pub(crate) fn charged(&mut self, charge: impl FnOnce(&mut ForkReport)) {
        let newest = self.children.last_key_value().map(|(&number, _)| number);
        let number = newest.or(self.reports.len().checked_sub(1));
        number.and_then(|number| self.reports.get_mut(number)).map(charge);
    }

    pub(crate) fn reports(&self) -> &[ForkReport] {
        &self.reports
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

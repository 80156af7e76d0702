//! The page states of a reservation, as simulation and replay report them at a mark.

use serde::{Deserialize, Serialize};

use hksim_policy::PAGE_BYTES;

/// The state of a present page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageState {
    /// Mapped by a PTE: a 4K page, or part of a larger folio.
    Base,
    /// Part of a huge page mapped by a PMD entry.
    Thp,
    /// The shared zero page.
    Zero,
    /// Part of the shared huge zero page.
    HugeZero,
    /// Part of a hugetlb page.
    Hugetlb,
}

impl PageState {
    /// Every state.
    pub const ALL: [PageState; 5] =
        [PageState::Base, PageState::Thp, PageState::Zero, PageState::HugeZero, PageState::Hugetlb];

    /// The state's name in files.
    pub fn word(self) -> &'static str {
        match self {
            PageState::Base => "base",
            PageState::Thp => "thp",
            PageState::Zero => "zero",
            PageState::HugeZero => "huge_zero",
            PageState::Hugetlb => "hugetlb",
        }
    }

    /// Whether the page uses memory. Zero pages are shared and do not count.
    pub fn is_resident(self) -> bool {
        matches!(self, PageState::Base | PageState::Thp | PageState::Hugetlb)
    }
}

/// Consecutive pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageRun {
    /// First page, from the base of the reservation.
    pub first_page: u64,
    /// Number of pages, above 0.
    pub pages: u64,
    /// Their state.
    pub state: PageState,
}

impl PageRun {
    fn end(&self) -> u64 {
        self.first_page + self.pages
    }
}

/// The present pages of a reservation. Runs are ascending, disjoint and maximal, so that equal sets are equal values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSet {
    runs: Vec<PageRun>,
}

impl PageSet {
    /// Appends pages after all others. Extends the last run if the pages follow it directly in the same state.
    ///
    /// # Panics
    /// If the pages do not start after the last page of the set: a bug in the caller.
    pub fn push(&mut self, run: PageRun) {
        if run.pages == 0 {
            return;
        }
        if let Some(last) = self.runs.last_mut() {
            assert!(last.end() <= run.first_page, "page {} comes after page {}", run.first_page, last.end() - 1);
            if last.end() == run.first_page && last.state == run.state {
                last.pages += run.pages;
                return;
            }
        }
        self.runs.push(run);
    }

    /// The runs.
    pub fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    /// Pages in a state.
    pub fn pages(&self, state: PageState) -> u64 {
        self.runs.iter().filter(|run| run.state == state).map(|run| run.pages).sum()
    }

    /// Pages in all states.
    pub fn pages_total(&self) -> u64 {
        self.runs.iter().map(|run| run.pages).sum()
    }

    /// Resident bytes, hugetlb included.
    pub fn resident_bytes(&self) -> u64 {
        self.runs.iter().filter(|run| run.state.is_resident()).map(|run| run.pages * PAGE_BYTES).sum()
    }

    /// The pages that differ: (those of this set, those of `other`). A page that is in both sets with different states
    /// is in both results.
    pub fn symmetric_difference(&self, other: &PageSet) -> (PageSet, PageSet) {
        (self.without(other), other.without(self))
    }

    /// The pages of this set that `other` lacks or has in another state.
    fn without(&self, other: &PageSet) -> PageSet {
        let mut left = PageSet::default();
        let mut next = 0;
        for run in &self.runs {
            let mut first_page = run.first_page;
            while next < other.runs.len() && other.runs[next].end() <= first_page {
                next += 1;
            }
            for against in other.runs[next..].iter().take_while(|against| against.first_page < run.end()) {
                if against.state == run.state {
                    let pages = against.first_page.saturating_sub(first_page);
                    left.push(PageRun { first_page, pages, state: run.state });
                    first_page = against.end().min(run.end());
                }
            }
            left.push(PageRun { first_page, pages: run.end() - first_page, state: run.state });
        }
        left
    }
}

impl FromIterator<PageRun> for PageSet {
    fn from_iter<I: IntoIterator<Item = PageRun>>(runs: I) -> PageSet {
        let mut set = PageSet::default();
        runs.into_iter().for_each(|run| set.push(run));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_trace::splitmix::Splitmix64;

    /// The oracle: one entry per page.
    fn spread(set: &PageSet) -> Vec<Option<PageState>> {
        let mut pages = vec![None; 64];
        for run in set.runs() {
            pages[run.first_page as usize..run.end() as usize].fill(Some(run.state));
        }
        pages
    }

    fn gather(pages: &[Option<PageState>]) -> PageSet {
        let runs = pages.iter().enumerate();
        runs.filter_map(|(page, state)| state.map(|state| PageRun { first_page: page as u64, pages: 1, state }))
            .collect()
    }

    #[test]
    fn differences_agree_with_a_page_by_page_comparison() {
        let mut seeded = Splitmix64::new(0x2545_F491_4F6C_DD1D);
        let mut draw = |below: u64| seeded.below(below);
        for round in 0..2000 {
            let mut random = || -> Vec<Option<PageState>> {
                let mut state = None;
                let change = |state: &mut Option<PageState>, draw: &mut dyn FnMut(u64) -> u64| {
                    if draw(3) == 0 {
                        *state = [None, Some(PageState::Base), Some(PageState::Zero)][draw(3) as usize];
                    }
                    *state
                };
                (0..64).map(|_| change(&mut state, &mut draw)).collect()
            };
            let (one, two) = (random(), random());
            let (left, right) = gather(&one).symmetric_difference(&gather(&two));
            let keep = |from: &[Option<PageState>], other: &[Option<PageState>]| -> Vec<Option<PageState>> {
                from.iter().zip(other).map(|(a, b)| if a == b { None } else { *a }).collect()
            };
            assert_eq!(spread(&left), keep(&one, &two), "round {round}");
            assert_eq!(spread(&right), keep(&two, &one), "round {round}");
            assert_eq!(left, gather(&spread(&left)), "runs are maximal, round {round}");
        }
    }

    #[test]
    fn resident_bytes_exclude_zero_pages() {
        let set: PageSet = PageState::ALL
            .iter()
            .enumerate()
            .map(|(at, &state)| PageRun { first_page: at as u64 * 10, pages: 2, state })
            .collect();
        assert_eq!(set.resident_bytes(), 3 * 2 * PAGE_BYTES);
        assert_eq!((set.pages_total(), set.pages(PageState::Zero)), (10, 2));
    }
}

//! Derives the installs between two scans of a frame (2 MiB of address space), from nothing but the scanned page states
//! and the traps.

use hksim_engine::{ByKind, PageState};
use hksim_linux_probe::page_flags::FolioPart;
use serde::{Deserialize, Serialize};

use crate::folios::FolioParts;
use crate::fork_frames::Changed;
use crate::page_snapshot::{FRAME_PAGES, Frame};

/// A change that matches no rule: a page, its states before and after, and the traps on it (or on its frame).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unclassified {
    /// The page number, counted from address 0.
    pub page: u64,
    /// Its state at the first scan.
    pub before: Option<PageState>,
    /// Its state at the second scan.
    pub after: Option<PageState>,
    /// Traps between the scans.
    pub traps: u64,
}

/// The possible cause of changes in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// The program ran, with these traps on each page of the frame.
    Ran(&'a [u8; FRAME_PAGES]),
    /// The program ran after a fork: the traps on each page, and the pages whose physical page frame changed since.
    RanForked(&'a [u8; FRAME_PAGES], &'a Changed),
    /// A populating system call, with the folios of the pages if the kernel reports them.
    Populated(Option<&'a FolioParts>),
    /// A system call that collapses present pages into huge pages.
    Collapsed,
    /// Another system call.
    Called,
    /// Unknown: without traps, nothing is classified.
    Unseen,
}

/// Installs by kind, and unclassified changes.
pub(crate) struct InstallClassifier {
    pub(crate) installs: ByKind,
    pub(crate) unclassified: Vec<Unclassified>,
    pub(crate) unclassified_pages: u64,
}

/// Maximum number of unclassified pages kept as examples.
const EXAMPLES_MAX: usize = 64;

impl InstallClassifier {
    pub(crate) fn new() -> InstallClassifier {
        let unclassified = Vec::with_capacity(EXAMPLES_MAX);
        InstallClassifier { installs: ByKind::default(), unclassified, unclassified_pages: 0 }
    }

    pub(crate) fn reject(&mut self, odd: Unclassified) {
        self.unclassified_pages += 1;
        if self.unclassified.len() < EXAMPLES_MAX {
            self.unclassified.push(odd);
        }
    }

    /// Counts the changes of a frame that begins at `first_page`.
    pub(crate) fn classify(&mut self, first_page: u64, before: &Frame, after: &Frame, cause: Cause<'_>) {
        match cause {
            Cause::Ran(traps) => Ran { first_page, before, after, traps, copied: None, classifier: self }.classify(),
            Cause::RanForked(traps, copied) => {
                Ran { first_page, before, after, traps, copied: Some(copied), classifier: self }.classify();
            }
            Cause::Populated(parts) => self.populated(first_page, before, after, parts),
            Cause::Collapsed => self.collapsed(first_page, before, after),
            Cause::Called => self.called(first_page, before, after),
            Cause::Unseen => {}
        }
    }

    /// Counts the installs of a populating call. Such a call takes no traps, so the two scans are sufficient.
    fn populated(&mut self, first_page: u64, before: &Frame, after: &Frame, parts: Option<&FolioParts>) {
        let was_empty = before.iter().all(Option::is_none);
        if let Some(huge) = whole(after) {
            match (whole(before), huge) {
                (Some(state), now) if state == now => {}
                (None, PageState::Thp) if was_empty => self.installs.thp += 1,
                (Some(PageState::HugeZero), PageState::Thp) => self.installs.thp += 1,
                (None, PageState::HugeZero) if was_empty => self.installs.zero += 1,
                (None, PageState::Hugetlb) if was_empty => self.installs.hugetlb += 1,
                (before, _) => self.reject(Unclassified { page: first_page, before, after: Some(huge), traps: 0 }),
            }
            return;
        }
        for (at, (&before, &after)) in before.iter().zip(after).enumerate() {
            match (before.map(alone), after) {
                (before, after) if before == after => {}
                (None, Some(PageState::Zero)) => self.installs.zero += 1,
                (None, Some(PageState::Base)) => match parts.map_or(FolioPart::Single, |parts| parts[at]) {
                    FolioPart::Single => self.installs.base_4k += 1,
                    FolioPart::Head => self.installs.mthp += 1,
                    FolioPart::Tail => {}
                },
                (Some(PageState::Zero), Some(PageState::Base)) => self.installs.cow += 1,
                _ => self.reject(Unclassified { page: first_page + at as u64, before, after, traps: 0 }),
            }
        }
    }

    /// If a populating call took fewer `faults` than it installed pages since `before`, reclassifies some of the pages
    /// as folios of `folio_pages` pages. `folio_pages` is `None` unless exactly one folio size is on. Returns whether
    /// the number of installs then equals `faults`.
    pub(crate) fn join_populated(&mut self, before: &ByKind, faults: u64, folio_pages: Option<u64>) -> bool {
        let surplus = (self.installs.total() - before.total()).checked_sub(faults);
        let (surplus, folio_pages) = match (surplus, folio_pages) {
            (Some(0), _) => return true,
            (Some(surplus), Some(folio_pages)) => (surplus, folio_pages),
            _ => return false,
        };
        let folios = surplus / (folio_pages - 1);
        let is_whole = surplus.is_multiple_of(folio_pages - 1);
        if !is_whole || folios * folio_pages > self.installs.base_4k - before.base_4k {
            return false;
        }
        self.installs.base_4k -= folios * folio_pages;
        self.installs.mthp += folios;
        true
    }

    /// Counts the installs of a collapse, which takes neither traps nor faults. Each new huge page is an install. Other
    /// pages must not change.
    fn collapsed(&mut self, first_page: u64, before: &Frame, after: &Frame) {
        match (whole(before), whole(after)) {
            (None, Some(PageState::Thp)) => self.installs.thp += 1,
            _ if before == after => {}
            _ => {
                let at = (0..FRAME_PAGES).find(|&at| before[at] != after[at]).unwrap_or(0);
                let page = first_page + at as u64;
                self.reject(Unclassified { page, before: before[at], after: after[at], traps: 0 });
            }
        }
    }

    /// Handles any other system call, which may drop, split or move pages but installs none. The caller compares moved
    /// pages.
    fn called(&mut self, first_page: u64, before: &Frame, after: &Frame) {
        for (at, (&before, &after)) in before.iter().zip(after).enumerate() {
            if before.is_none() && after.is_some() {
                self.reject(Unclassified { page: first_page + at as u64, before, after, traps: 0 });
            }
        }
    }
}

/// The state of a frame if a single PMD entry maps it.
fn whole(frame: &Frame) -> Option<PageState> {
    frame[0].filter(|state| matches!(state, PageState::Thp | PageState::HugeZero | PageState::Hugetlb))
}

/// The state of a page after its frame's entry was split.
fn alone(state: PageState) -> PageState {
    match state {
        PageState::Thp => PageState::Base,
        PageState::HugeZero => PageState::Zero,
        state => state,
    }
}

/// A frame that the program accessed between the scans.
struct Ran<'a> {
    first_page: u64,
    before: &'a Frame,
    after: &'a Frame,
    traps: &'a [u8; FRAME_PAGES],
    /// Pages whose physical page frame changed since the last fork, if there was one.
    copied: Option<&'a Changed>,
    classifier: &'a mut InstallClassifier,
}

impl Ran<'_> {
    fn classify(mut self) {
        match whole(self.after) {
            Some(state) => self.classify_whole(state),
            None => self.classify_pages(),
        }
    }

    /// Handles a frame that a single entry maps now. The traps of all its pages are added up.
    fn classify_whole(&mut self, after: PageState) {
        let traps: u64 = self.traps.iter().map(|&traps| u64::from(traps)).sum();
        let was_empty = self.before.iter().all(Option::is_none);
        let installs = &mut self.classifier.installs;
        match (whole(self.before), after, traps) {
            (Some(before), after, 0) if before == after => {}
            // The child has exited: the write only restored write permission.
            (Some(PageState::Thp), PageState::Thp, 1) if self.copied.is_some_and(|copied| !copied[0]) => {}
            (Some(PageState::HugeZero), PageState::Thp, 1) => installs.thp += 1,
            (None, PageState::Thp, 1) if was_empty => installs.thp += 1,
            (None, PageState::Thp, 2) if was_empty => {
                installs.zero += 1;
                installs.thp += 1;
            }
            (None, PageState::HugeZero, 1) if was_empty => installs.zero += 1,
            (None, PageState::Hugetlb, 1) if was_empty => installs.hugetlb += 1,
            // If a hugetlb page was first read, by the program or a populating call, its first write takes another
            // fault.
            (Some(PageState::Hugetlb), PageState::Hugetlb, 1) => installs.hugetlb += 1,
            (None, PageState::Hugetlb, 2) if was_empty => installs.hugetlb += 2,
            (before, ..) => self.classifier.reject(Unclassified {
                page: self.first_page,
                before: before.or(self.before[0]),
                after: Some(after),
                traps,
            }),
        }
    }

    /// Handles a frame in which every page has a separate entry.
    fn classify_pages(&mut self) {
        let mut in_folio = [false; FRAME_PAGES];
        if self.has_pages_without_trap() {
            self.find_folios(&mut in_folio);
        }
        for at in (0..FRAME_PAGES).filter(|&at| !in_folio[at]) {
            let (before, after, traps) = (self.before[at], self.after[at], self.traps[at]);
            let installs = &mut self.classifier.installs;
            match (before.map(alone), after, traps) {
                (before, after, 0) if before == after => {}
                (None, Some(PageState::Zero), 1) => installs.zero += 1,
                (None, Some(PageState::Base), 1) => installs.base_4k += 1,
                (None, Some(PageState::Base), 2) => {
                    installs.zero += 1;
                    installs.cow += 1;
                }
                (Some(PageState::Zero), Some(PageState::Base), 1) => installs.cow += 1,
                (Some(PageState::Base), Some(PageState::Base), 1) if self.copied.is_some() => {
                    installs.cow += u64::from(self.copied.is_some_and(|copied| copied[at]));
                }
                _ => {
                    let page = self.first_page + at as u64;
                    self.classifier.reject(Unclassified { page, before, after, traps: u64::from(traps) });
                }
            }
        }
    }

    fn is_new(&self, at: usize) -> bool {
        self.before[at].is_none() && self.after[at] == Some(PageState::Base)
    }

    fn has_pages_without_trap(&self) -> bool {
        (0..FRAME_PAGES).any(|at| self.is_new(at) && self.traps[at] == 0)
    }

    /// Finds folios between 4K and 2M. A folio is the largest aligned group of pages that one trap installed.
    fn find_folios(&mut self, in_folio: &mut [bool; FRAME_PAGES]) {
        for at in 0..FRAME_PAGES {
            if in_folio[at] || self.traps[at] != 1 || !self.is_new(at) {
                continue;
            }
            let group = (1..=8).rev().map(|order| {
                let pages = 1usize << order;
                at / pages * pages..(at / pages + 1) * pages
            });
            let folio = group.into_iter().find(|pages| {
                let traps: u64 = self.traps[pages.clone()].iter().map(|&traps| u64::from(traps)).sum();
                traps == 1 && pages.clone().all(|page| self.is_new(page) && !in_folio[page])
            });
            if let Some(pages) = folio {
                self.classifier.installs.mthp += 1;
                in_folio[pages].fill(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_snapshot::ABSENT;
    use std::ops::Range;

    fn classifier(before: &Frame, after: &Frame, trapped: &[(usize, u8)]) -> InstallClassifier {
        let mut traps = [0; FRAME_PAGES];
        trapped.iter().for_each(|&(at, count)| traps[at] = count);
        let mut classifier = InstallClassifier::new();
        classifier.classify(512, before, after, Cause::Ran(&traps));
        classifier
    }

    fn frame(pages: Range<usize>, state: PageState) -> Frame {
        let mut frame = ABSENT;
        frame[pages].fill(Some(state));
        frame
    }

    #[test]
    fn single_pages_are_counted_by_kind() {
        let after = frame(0..3, PageState::Base);
        let got = classifier(&ABSENT, &after, &[(0, 1), (1, 1), (2, 2)]);
        assert_eq!(got.installs, ByKind { base_4k: 2, zero: 1, cow: 1, ..ByKind::default() });
        assert_eq!(got.unclassified_pages, 0);
    }

    #[test]
    fn a_page_without_a_trap_is_not_a_4k_install() {
        let got = classifier(&ABSENT, &frame(7..8, PageState::Base), &[]);
        assert_eq!(got.installs, ByKind::default());
        assert_eq!(
            got.unclassified,
            [Unclassified { page: 519, before: None, after: Some(PageState::Base), traps: 0 }]
        );
    }

    #[test]
    fn after_a_fork_a_page_is_copied_or_reused() {
        let base = frame(0..2, PageState::Base);
        let thp = frame(0..FRAME_PAGES, PageState::Thp);
        let run = |before: &Frame, after: &Frame, trapped: &[usize], changed: &[usize]| {
            let (mut traps, mut copied, mut classifier) =
                ([0; FRAME_PAGES], [false; FRAME_PAGES], InstallClassifier::new());
            trapped.iter().for_each(|&at| traps[at] = 1);
            changed.iter().for_each(|&at| copied[at] = true);
            classifier.classify(0, before, after, Cause::RanForked(&traps, &copied));
            (classifier.installs.cow, classifier.unclassified_pages)
        };
        assert_eq!(run(&base, &base, &[0, 1], &[0]), (1, 0));
        assert_eq!(run(&thp, &frame(0..FRAME_PAGES, PageState::Base), &[7, 9], &[7, 9]), (2, 0), "split");
        assert_eq!(run(&thp, &thp, &[7], &[]), (0, 0));
        assert_eq!(run(&thp, &thp, &[7, 8], &[]), (0, 1));
    }

    #[test]
    fn a_trap_that_changed_nothing_is_unclassified() {
        let base = frame(0..1, PageState::Base);
        assert_eq!(classifier(&base, &base, &[(0, 1)]).unclassified_pages, 1);
    }

    #[test]
    fn a_group_of_pages_installed_by_one_trap_is_a_folio() {
        // Two adjacent 64K folios, and a single page.
        let mut after = frame(16..48, PageState::Base);
        after[100] = Some(PageState::Base);
        let got = classifier(&ABSENT, &after, &[(16, 1), (47, 1), (100, 1)]);
        assert_eq!(got.installs, ByKind { mthp: 2, base_4k: 1, ..ByKind::default() });
        assert_eq!(got.unclassified_pages, 0);
    }

    #[test]
    fn a_hugetlb_page_that_was_read_is_upgraded_once() {
        let hugetlb = frame(0..FRAME_PAGES, PageState::Hugetlb);
        assert_eq!(classifier(&ABSENT, &hugetlb, &[(4, 1)]).installs.hugetlb, 1);
        assert_eq!(classifier(&ABSENT, &hugetlb, &[(4, 2)]).installs.hugetlb, 2);
        assert_eq!(classifier(&hugetlb, &hugetlb, &[(4, 1)]).installs.hugetlb, 1);
        assert_eq!(classifier(&hugetlb, &hugetlb, &[(4, 2)]).unclassified_pages, 1);
    }

    #[test]
    fn each_reported_folio_counts_once() {
        let mut parts = [FolioPart::Single; FRAME_PAGES];
        for folio in [16..32usize, 64..128] {
            parts[folio.clone()].fill(FolioPart::Tail);
            parts[folio.start] = FolioPart::Head;
        }
        let mut classifier = InstallClassifier::new();
        classifier.classify(0, &ABSENT, &frame(0..128, PageState::Base), Cause::Populated(Some(&parts)));
        assert_eq!(classifier.installs, ByKind { mthp: 2, base_4k: 48, ..ByKind::default() });
    }

    #[test]
    fn fewer_faults_than_pages_mean_folios() {
        let populated = |pages: u64, faults: u64, folio_pages| {
            let mut classifier = InstallClassifier::new();
            classifier.installs.base_4k = 5 + pages;
            let before = ByKind { base_4k: 5, ..ByKind::default() };
            classifier
                .join_populated(&before, faults, folio_pages)
                .then_some((classifier.installs.base_4k, classifier.installs.mthp))
        };
        assert_eq!(populated(40, 40, None), Some((45, 0)));
        assert_eq!(populated(40, 10, Some(16)), Some((5 + 8, 2)), "2 folios and 8 pages");
        assert_eq!(populated(40, 10, None), None, "no folio size is on");
        assert_eq!(populated(40, 11, Some(16)), None, "29 surplus pages do not form whole folios");
        assert_eq!(populated(40, 41, Some(16)), None, "a fault installed nothing");
    }

    #[test]
    fn a_collapse_installs_only_huge_pages() {
        let thp = frame(0..FRAME_PAGES, PageState::Thp);
        let collapsed = |before: &Frame, after: &Frame| {
            let mut classifier = InstallClassifier::new();
            classifier.classify(0, before, after, Cause::Collapsed);
            (classifier.installs.thp, classifier.unclassified_pages)
        };
        assert_eq!(collapsed(&frame(3..70, PageState::Base), &thp), (1, 0));
        assert_eq!(collapsed(&thp, &thp), (0, 0));
        assert_eq!(collapsed(&ABSENT, &frame(3..4, PageState::Base)), (0, 1));
    }

    #[test]
    fn huge_pages_count_once() {
        let (thp, huge_zero) = (frame(0..FRAME_PAGES, PageState::Thp), frame(0..FRAME_PAGES, PageState::HugeZero));
        assert_eq!(classifier(&ABSENT, &thp, &[(9, 1)]).installs.thp, 1);
        assert_eq!(
            classifier(&ABSENT, &thp, &[(9, 1), (300, 1)]).installs,
            ByKind { zero: 1, thp: 1, ..ByKind::default() }
        );
        assert_eq!(classifier(&huge_zero, &thp, &[(5, 1)]).installs, ByKind { thp: 1, ..ByKind::default() });
        let collapsed = classifier(&frame(0..1, PageState::Base), &thp, &[]);
        assert_eq!((collapsed.installs, collapsed.unclassified_pages), (ByKind::default(), 1));
    }
}

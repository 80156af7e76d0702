//! Reports page contents to the kernel model if it needs them.

use std::cell::RefCell;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use super::contents::Contents;
use super::{BASE_PAGE, SimMemory};
use crate::observer::MemoryObserver;
use hksim_linux_mm::{Content, PMD_PAGES};

impl<H: MemoryObserver> SimMemory<H> {
    /// Reports to an observer the content of every page whose folio an MADV_FREE of `pages` may split: those in the same
    /// PMD ranges, and those that a move has separated from the rest of their folio.
    pub(super) fn report_contents(&self, pages: &Range<u64>, observer: &RefCell<H>) {
        let Some(contents) = &self.contents else { return };
        let at = self.pages_at(pages);
        let pmds = at.start - at.start % PMD_PAGES..at.end.next_multiple_of(PMD_PAGES);
        self.report_contents_at(contents, &pmds, observer);
        let elsewhere = observer.borrow().folio_pages_outside(&pmds);
        for page in elsewhere {
            self.report_contents_at(contents, &(page..page + 1), observer);
        }
    }

    /// Reports the content of the arena's pages in a range of the address space.
    fn report_contents_at(&self, contents: &Contents, range: &Range<u64>, observer: &RefCell<H>) {
        let arena_page = self.layout.arena / PAGE_BYTES;
        let mut observer = observer.borrow_mut();
        for page in self.arena_pages_at(range).into_iter().flatten() {
            let at = (page - arena_page) * PAGE_BYTES;
            let holds_bytes = contents.holds_bytes(at) || self.holds_meta(at);
            if !holds_bytes {
                // A split may replace the page by the zero page. The next write then faults, so it must pass the
                // filter. Writes to metadata are told from reads only from now on: few such pages are all zeros.
                let is_written = self.filter.pass_again(page);
                if is_written && self.is_in_meta(at) {
                    self.meta_tracker.switch_on();
                }
            }
            observer.content(self.page_at(page), if holds_bytes { Content::NonZero } else { Content::Zero });
        }
    }

    /// The pages of the arena in a range of the address space.
    fn arena_pages_at(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let arena_page = self.layout.arena / PAGE_BYTES;
        match &self.bindings {
            None => {
                let (first, end) = (range.start.saturating_sub(BASE_PAGE), range.end.saturating_sub(BASE_PAGE));
                std::iter::once(first.max(arena_page)..end.min(self.layout.bytes() / PAGE_BYTES)).collect()
            }
            Some(bindings) => {
                let named = bindings.named_within(range).into_iter();
                named.map(|pages| arena_page + pages.start..arena_page + pages.end).collect()
            }
        }
    }

    /// Whether a byte of the arena is where a SuperSlab's metadata is, if there is one.
    fn is_in_meta(&self, at: u64) -> bool {
        let offset = at & ((1 << self.layout.superslab_shift) - 1);
        self.is_meta_in_band() && offset < u64::from(self.layout.meta_bytes)
    }

    /// Whether a page of the arena holds non-zero metadata.
    fn holds_meta(&self, at: u64) -> bool {
        let shift = self.layout.superslab_shift;
        let (ordinal, offset) = (at >> shift, at & ((1 << shift) - 1));
        self.is_in_meta(at)
            && self.superslabs[ordinal as usize]
                .get()
                .is_some_and(|superslab| superslab.meta_page_holds_bytes(offset / PAGE_BYTES, &self.layout))
    }
}

//! The simulated address space of an allocator design.

mod contents;

use std::ops::Range;

use hksim_engine::{AddressSpace, Advice, Cause, Errno, Growth, Mapping, PAGE_BYTES, Region, SetClock, Touch};
use hksim_linux_mm::{Content, PMD_PAGES, PageState};
use hksim_policy::memory::{APPLICATION_BYTE, MemoryLock};

use crate::observer::AccountingObserver;
use contents::{Pages, by_page};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;

/// An address space on a kernel model, which an observer feeds. It stores the words that the allocator writes.
pub struct SimSpace<H> {
    observer: H,
    region: Region,
    pages: Pages,
    now_ns: u64,
    /// Number of events performed.
    events: u64,
}

fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end / PAGE_BYTES
}

impl<H: AccountingObserver> SimSpace<H> {
    /// An empty address space.
    pub fn new(observer: H) -> SimSpace<H> {
        SimSpace { observer, region: Region::new(), pages: Pages::default(), now_ns: 0, events: 0 }
    }

    /// The observer.
    pub fn observer(&self) -> &H {
        &self.observer
    }

    /// The observer, which knows how many events were performed.
    pub fn observer_mut(&mut self) -> &mut H {
        self.observer.set_events(self.events);
        &mut self.observer
    }

    /// What is mapped.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// An event of the trace was performed.
    pub fn event_done(&mut self) {
        self.events += 1;
    }

    /// A fork has write-protected these pages: the next touch of each passes.
    pub(crate) fn forked(&mut self, pages: Range<u64>) {
        self.pages.touched_in(pages, |_, page| page.pass_again());
    }

    /// `mlockall` or `munlockall` of the program: locks what is mapped, and what will be mapped, as `lock` says.
    pub(crate) fn lock_memory(&mut self, lock: MemoryLock) {
        self.observer_mut().lock_process(lock);
        if lock.current {
            let ranges: Vec<Range<u64>> = self.region.ranges().iter().map(pages_of).collect();
            for pages in ranges {
                // The model does not limit locked memory.
                let _ = self.observer_mut().lock(pages, lock.locking());
            }
        }
    }

    fn touch_page(&mut self, page: u64, touch: Touch, cause: Cause) {
        if self.pages.page(page).passes(touch) {
            self.observer_mut().touch(page, touch, cause);
        }
    }

    fn accessed(&mut self, at: u64, bytes: u64, cause: Cause) {
        if H::ACCESSES.any() {
            self.observer_mut().access(at..at + bytes, cause);
        }
    }

    /// Reports the content of every page whose folio an MADV_FREE of `pages` may split: those in the same PMD ranges,
    /// and those that a move has separated from the rest of their folio. The split may replace a page of zeros by the
    /// zero page.
    fn report_contents(&mut self, pages: &Range<u64>) {
        let pmds = pages.start / PMD_PAGES * PMD_PAGES..pages.end.next_multiple_of(PMD_PAGES);
        let elsewhere = self.observer.folio_pages_outside(&pmds);
        let each = std::iter::once(pmds).chain(elsewhere.into_iter().map(|page| page..page + 1));
        self.observer.set_events(self.events);
        for pages in each {
            for page in pages.filter(|&page| self.region.range(page * PAGE_BYTES, PAGE_BYTES).is_ok()) {
                let stored = self.pages.page(page);
                if stored.is_zero() {
                    stored.pass_again();
                }
                let content = if stored.is_zero() { Content::Zero } else { Content::NonZero };
                self.observer.content(page, content);
            }
        }
    }
}

impl<H> SetClock for SimSpace<H> {
    fn set_now(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }
}

impl<H: AccountingObserver> AddressSpace for SimSpace<H> {
    fn map(&mut self, bytes: u64, align: u64, mapping: Mapping) -> Result<u64, Errno> {
        let range = self.region.place(bytes, align, mapping)?;
        self.observer_mut().map(pages_of(&range), mapping)?;
        self.region.add(range.clone());
        Ok(range.start)
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Errno> {
        let range = self.region.range(at, bytes)?;
        self.region.check_removable(&range)?;
        let pages = pages_of(&range);
        self.observer_mut().unmap(pages.clone())?;
        self.region.remove(range);
        self.pages.touched_in(pages, |_, page| page.drop_contents());
        Ok(())
    }

    fn advise(&mut self, at: u64, bytes: u64, advice: Advice) -> Result<(), Errno> {
        let pages = pages_of(&self.region.range(at, bytes)?);
        if advice == Advice::Free {
            self.report_contents(&pages);
        }
        let result = self.observer_mut().advise(pages.clone(), advice);
        let SimSpace { observer, pages: stored, .. } = self;
        let kernel = observer.accounting().kernel();
        stored.touched_in(pages, |number, page| match advice {
            // The kernel keeps locked pages, and pages after an error.
            Advice::DontNeed if kernel.page_state(number) == PageState::None => page.drop_contents(),
            _ => page.pass_again(),
        });
        result
    }

    fn remap(&mut self, at: u64, bytes: u64, new_bytes: u64, growth: Growth) -> Result<u64, Errno> {
        let old = self.region.range(at, bytes)?;
        let new = self.region.place_resized(&old, new_bytes, growth)?;
        if new == old {
            return Ok(at);
        }
        self.observer_mut().remap(pages_of(&old), pages_of(&new))?;
        self.region.remove(old.clone());
        self.region.add(new.clone());
        let (old, new) = (pages_of(&old), pages_of(&new));
        let kept = old.start..old.end.min(old.start + (new.end - new.start));
        self.pages.touched_in(kept.end..old.end, |_, page| page.drop_contents());
        if new.start == old.start {
            self.pages.touched_in(kept, |_, page| page.pass_again());
        } else {
            self.pages.moved(kept, new.start);
        }
        Ok(new.start * PAGE_BYTES)
    }

    fn read(&mut self, at: u64, cause: Cause) -> u64 {
        let (page, word) = word_at(at);
        self.touch_page(page, Touch::Read, cause);
        self.accessed(at, WORD_BYTES, cause);
        self.pages.page(page).read(word)
    }

    fn write(&mut self, at: u64, value: u64, cause: Cause) {
        let (page, word) = word_at(at);
        self.touch_page(page, if value == 0 { Touch::WriteZero } else { Touch::Write }, cause);
        self.accessed(at, WORD_BYTES, cause);
        self.pages.page(page).write(word, value);
    }

    fn touch(&mut self, at: u64, bytes: u64, touch: Touch, cause: Cause) {
        if bytes == 0 {
            return;
        }
        by_page(at, bytes, |page, range| {
            self.touch_page(page, touch, cause);
            match touch {
                Touch::Read => {}
                Touch::WriteZero => self.pages.page(page).fill(range, 0),
                Touch::Write => self.pages.page(page).fill(range, APPLICATION_BYTE),
            }
        });
        self.accessed(at, bytes, cause);
    }

    /// Page by page, each read before its write, as a replay does it.
    fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (source, target) = (from + done, to + done);
            let to_page_end = |at: u64| PAGE_BYTES - at % PAGE_BYTES;
            let step = to_page_end(source).min(to_page_end(target)).min(bytes - done);
            let (source_page, target_page) = (source / PAGE_BYTES, target / PAGE_BYTES);
            let in_page = |at: u64| at % PAGE_BYTES..at % PAGE_BYTES + step;
            self.touch_page(source_page, Touch::Read, Cause::Copy);
            self.accessed(source, step, Cause::Copy);
            let words = self.pages.page(source_page).words_in(in_page(source));
            let is_zero = words.iter().all(|&word| word == 0);
            self.touch_page(target_page, if is_zero { Touch::WriteZero } else { Touch::Write }, Cause::Copy);
            self.accessed(target, step, Cause::Copy);
            self.pages.page(target_page).put(in_page(target), &words);
            done += step;
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

/// The page and the word of an address.
fn word_at(at: u64) -> (u64, usize) {
    assert!(at.is_multiple_of(WORD_BYTES), "a design accesses a word at {at:#x}, which is not a multiple of 8");
    (at / PAGE_BYTES, (at % PAGE_BYTES / WORD_BYTES) as usize)
}

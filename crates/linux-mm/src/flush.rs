//! Translations that processors hold and that a call makes invalid: one by one, or all at once.

use std::mem;
use std::ops::Range;

use super::Kernel;
use super::span::{PMD_PAGES, pages_of};

/// The most pages between the first and the last changed entry for which the kernel invalidates translations one by one. For
/// more it invalidates all that the process has (x86: `tlb_single_page_flush_ceiling`).
const SINGLY_PAGES_MAX: u64 = 33;

/// What a call has changed so far. From Linux 6.16 on a call invalidates once at its end, whatever mappings it covers.
#[derive(Clone, Debug, Default)]
pub(super) struct Flush {
    /// From the first changed entry to behind the last.
    pages: Option<Range<u64>>,
    /// One of them maps a single page.
    has_single: bool,
    /// The call has dropped pages.
    pub drops: bool,
}

impl Flush {
    /// The entry of a page has changed.
    #[inline]
    pub fn page(&mut self, page: u64) {
        self.has_single = true;
        self.extend(page..page + 1);
    }

    /// The entry of a huge page has changed.
    pub fn huge(&mut self, pmd: u64) {
        self.extend(pages_of(pmd));
    }

    /// A PTE table was freed. The kernel adds the first page that it can map.
    pub fn table(&mut self, pmd: u64) {
        let first = pmd * PMD_PAGES;
        self.extend(first..first + 1);
    }

    #[inline]
    fn extend(&mut self, pages: Range<u64>) {
        self.pages = Some(match self.pages.take() {
            None => pages,
            Some(known) => known.start.min(pages.start)..known.end.max(pages.end),
        });
    }

    /// How many pages are invalidated one by one. Huge pages are not counted.
    fn singly_pages(&self) -> u64 {
        let pages = self.pages.as_ref().map_or(0, |pages| pages.end - pages.start);
        if self.has_single && pages <= SINGLY_PAGES_MAX { pages } else { 0 }
    }
}

impl Kernel {
    /// Counts what the call that ends now invalidates.
    pub(super) fn end_flush(&mut self) {
        let flush = mem::take(&mut self.flush);
        self.operations.flushed_pages += flush.singly_pages();
        self.operations.dropping_calls += u64::from(flush.drops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;
    use crate::{Access, Advice, Kernel, KernelConfig, MapFlags, PageOperations};

    const START: u64 = 4 * PMD_PAGES;

    fn process() -> Kernel {
        let mut kernel = Kernel::new(KernelConfig::default());
        assert!(kernel.map(START..START + 2 * PMD_PAGES, MapFlags::READ_WRITE).result.is_ok());
        assert!(kernel.advise(START + PMD_PAGES..START + 2 * PMD_PAGES, Advice::HugePage).result.is_ok());
        kernel
    }

    /// Pages invalidated one by one, and calls that dropped pages.
    fn done(kernel: &Kernel) -> [u64; 2] {
        let PageOperations { flushed_pages, dropping_calls, .. } = kernel.operations();
        [*flushed_pages, *dropping_calls]
    }

    fn advise(kernel: &mut Kernel, pages: Range<u64>, advice: Advice) -> [u64; 2] {
        assert!(kernel.advise(pages, advice).result.is_ok());
        done(kernel)
    }

    #[test]
    fn up_to_33_pages_are_invalidated_one_by_one() {
        let mut kernel = process();
        assert_eq!(advise(&mut kernel, START..START + 100, Advice::DontNeed), [0, 0], "nothing is present");
        write(&mut kernel, START..START + 100);
        assert_eq!(advise(&mut kernel, START..START + 33, Advice::DontNeed), [33, 1]);
        assert_eq!(advise(&mut kernel, START + 33..START + 67, Advice::DontNeed), [33, 2], "34 pages");
        assert_eq!(advise(&mut kernel, START..START + 67, Advice::DontNeed), [33, 2], "nothing is left");
        write(&mut kernel, [START + 2, START + 30]);
        assert_eq!(advise(&mut kernel, START..START + 60, Advice::DontNeed), [62, 3], "also those between the pages");
    }

    #[test]
    fn a_call_on_several_mappings_invalidates_once() {
        let mut kernel = process();
        write(&mut kernel, START..START + 20);
        assert!(kernel.advise(START + 10..START + 20, Advice::Random).result.is_ok());
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::DontNeed), [20, 1]);
        write(&mut kernel, [START, START + 50]);
        assert_eq!(advise(&mut kernel, START..START + 60, Advice::DontNeed), [20, 2], "51 pages");
    }

    #[test]
    fn a_freed_table_invalidates_from_the_first_page_that_it_maps() {
        let mut kernel = process();
        write(&mut kernel, START + 100..START + 110);
        assert_eq!(advise(&mut kernel, START..START + PMD_PAGES, Advice::DontNeed), [0, 1], "MADV_DONTNEED frees it");
        write(&mut kernel, START + 10..START + 20);
        assert!(kernel.unmap(START..START + PMD_PAGES).is_ok());
        assert_eq!(done(&kernel), [20, 2], "from page 0");
    }

    #[test]
    fn a_guard_page_has_no_translation() {
        let mut kernel = process();
        assert_eq!(advise(&mut kernel, START..START + 5, Advice::GuardInstall), [0, 0]);
        write(&mut kernel, [START + 5]);
        // The page behind keeps the table.
        assert!(kernel.unmap(START..START + 100).is_ok());
        assert_eq!(done(&kernel), [1, 1]);
    }

    #[test]
    fn marking_invalidates_what_was_accessed_since() {
        let mut kernel = process();
        write(&mut kernel, START..START + 40);
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [20, 0]);
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [20, 0], "not accessed since");
        write(&mut kernel, [START + 3]);
        assert_eq!(kernel.touch(START + 4, Access::Read), Ok(None));
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [22, 0]);
        assert_eq!(advise(&mut kernel, START..START + 40, Advice::Free), [42, 0], "the others");
        write(&mut kernel, [START]);
        assert_eq!(advise(&mut kernel, START..START + 40, Advice::Cold), [43, 0]);
        assert_eq!(advise(&mut kernel, START..START + 40, Advice::Free), [44, 0], "not accessed since, but dirty");
    }

    #[test]
    fn a_huge_page_is_one_translation_and_a_call_that_unmaps_several_mappings_one_range() {
        let mut kernel = process();
        write(&mut kernel, [START + PMD_PAGES]);
        assert_eq!(advise(&mut kernel, START + PMD_PAGES..START + 2 * PMD_PAGES, Advice::Free), [0, 0]);
        assert_eq!(advise(&mut kernel, START + PMD_PAGES..START + 2 * PMD_PAGES, Advice::DontNeed), [0, 1]);
        write(&mut kernel, [START + PMD_PAGES - 1, START + PMD_PAGES]);
        assert!(kernel.unmap(START + PMD_PAGES - 1..START + 2 * PMD_PAGES).is_ok());
        assert_eq!(done(&kernel), [0, 2], "513 pages");
    }
}

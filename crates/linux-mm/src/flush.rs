//! Translations that processors hold and that a call makes invalid: one by one, or all at once.

use std::ops::Range;

use super::span::PMD_PAGES;

/// The most pages between the first and the last changed entry for which the kernel invalidates translations one by one. For
/// more it invalidates all that the process has (x86: `tlb_single_page_flush_ceiling`).
const SINGLY_PAGES_MAX: u64 = 33;

/// The entries that a call has changed.
#[derive(Debug, Default)]
pub(super) struct Flush {
    /// From the first changed entry to behind the last.
    pages: Option<Range<u64>>,
    /// One of them maps a single page.
    has_single: bool,
}

impl Flush {
    /// The entry of a page has changed.
    #[inline]
    pub fn page(&mut self, page: u64) {
        self.has_single = true;
        self.extend(page..page + 1);
    }

    /// The entry of a PMD range has changed.
    pub fn pmd(&mut self, pmd: u64) {
        self.extend(pmd * PMD_PAGES..(pmd + 1) * PMD_PAGES);
    }

    #[inline]
    fn extend(&mut self, pages: Range<u64>) {
        self.pages = Some(match self.pages.take() {
            None => pages,
            Some(known) => known.start.min(pages.start)..known.end.max(pages.end),
        });
    }

    /// Whether any entry has changed.
    pub fn is_needed(&self) -> bool {
        self.pages.is_some()
    }

    /// How many pages are invalidated one by one. Huge pages are not counted.
    pub fn singly_pages(&self) -> u64 {
        let pages = self.pages.as_ref().map_or(0, |pages| pages.end - pages.start);
        if self.has_single && pages <= SINGLY_PAGES_MAX { pages } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Advice, Content, Kernel, KernelConfig, MapFlags, PageOperations};

    const START: u64 = 4 * PMD_PAGES;

    fn process() -> Kernel {
        let mut kernel = Kernel::new(KernelConfig::default());
        assert!(kernel.map(START..START + 2 * PMD_PAGES, MapFlags::READ_WRITE).result.is_ok());
        assert!(kernel.advise(START + PMD_PAGES..START + 2 * PMD_PAGES, Advice::HugePage).result.is_ok());
        kernel
    }

    fn write(kernel: &mut Kernel, pages: impl IntoIterator<Item = u64>) {
        for page in pages {
            kernel.touch(page, Access::Write(Content::NonZero)).expect("the access succeeds");
        }
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
    fn marking_invalidates_what_was_accessed_since() {
        let mut kernel = process();
        write(&mut kernel, START..START + 40);
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [20, 0]);
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [20, 0], "not accessed since");
        write(&mut kernel, [START + 3]);
        assert_eq!(kernel.touch(START + 4, Access::Read), Ok(None));
        assert_eq!(advise(&mut kernel, START..START + 20, Advice::Free), [22, 0]);
        assert_eq!(advise(&mut kernel, START..START + 40, Advice::Free), [42, 0], "the others");
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

//! Page-number arithmetic: 4 KiB pages, and the 2 MiB ranges (PMD ranges) that contain them.

use std::ops::Range;

/// Bytes of one base page.
pub const PAGE_BYTES: u64 = 4096;

/// Base pages in one PMD range: what one PMD entry maps, by a PTE table or as one huge page.
pub const PMD_PAGES: u64 = 512;

/// End of a program's address space, as a page number (47 bits of address on x86-64).
pub const ADDRESS_SPACE_PAGES: u64 = 1 << 35;

/// The number of the PMD range that holds `page`.
#[inline]
pub(super) fn pmd_of(page: u64) -> u64 {
    page / PMD_PAGES
}

/// The index of `page` inside its PMD range, 0..512.
#[inline]
pub(super) fn index_of(page: u64) -> usize {
    (page % PMD_PAGES) as usize
}

/// The pages of a PMD range.
pub(super) fn pages_of(pmd: u64) -> Range<u64> {
    pmd * PMD_PAGES..(pmd + 1) * PMD_PAGES
}

/// The PMD ranges that hold at least one page of `range`.
pub(super) fn pmds_touching(range: &Range<u64>) -> Range<u64> {
    pmd_of(range.start)..range.end.div_ceil(PMD_PAGES)
}

/// The part of `range` inside one PMD range.
pub(super) fn clip(range: &Range<u64>, pmd: u64) -> Range<u64> {
    let pages = pages_of(pmd);
    range.start.max(pages.start)..range.end.min(pages.end)
}

/// Whether `pages` is exactly one PMD range.
pub(super) fn is_whole_pmd(pages: &Range<u64>) -> bool {
    pages.start.is_multiple_of(PMD_PAGES) && pages.end - pages.start == PMD_PAGES
}

/// Whether `page` is the first page of a PMD range.
pub(super) fn is_pmd_aligned(page: u64) -> bool {
    page.is_multiple_of(PMD_PAGES)
}

/// Whether two ranges overlap.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

//! Page-number arithmetic: 4 KiB pages and the 2 MiB blocks they belong to.

use std::ops::Range;

/// Bytes of one base page.
pub const PAGE_BYTES: u64 = 4096;

/// Base pages in one 2 MiB block, the reach of one PTE table or one huge page.
pub const PMD_PAGES: u64 = 512;

/// First page number behind the address space of a program (47 bits of address on x86-64).
pub const ADDRESS_SPACE_PAGES: u64 = 1 << 35;

/// The 2 MiB block that holds `page`.
#[inline]
pub(super) fn pmd_of(page: u64) -> u64 {
    page / PMD_PAGES
}

/// The place of `page` inside its block, 0..512.
#[inline]
pub(super) fn index_of(page: u64) -> usize {
    (page % PMD_PAGES) as usize
}

/// The pages of `block`.
pub(super) fn pages_of(pmd: u64) -> Range<u64> {
    pmd * PMD_PAGES..(pmd + 1) * PMD_PAGES
}

/// The blocks that hold at least one page of `range`.
pub(super) fn pmds_touching(range: &Range<u64>) -> Range<u64> {
    pmd_of(range.start)..range.end.div_ceil(PMD_PAGES)
}

/// The part of `range` that lies in `block`.
pub(super) fn clip(range: &Range<u64>, pmd: u64) -> Range<u64> {
    let pages = pages_of(pmd);
    range.start.max(pages.start)..range.end.min(pages.end)
}

/// Whether `pages` are all the pages of one block.
pub(super) fn is_whole_pmd(pages: &Range<u64>) -> bool {
    pages.start.is_multiple_of(PMD_PAGES) && pages.end - pages.start == PMD_PAGES
}

/// Whether `page` is the first one of a block.
pub(super) fn is_pmd_aligned(page: u64) -> bool {
    page.is_multiple_of(PMD_PAGES)
}

/// Whether both ranges share a page.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

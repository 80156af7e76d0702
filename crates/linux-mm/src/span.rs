//! Page-number arithmetic: 4 KiB pages and the 2 MiB blocks they belong to.

use std::ops::Range;

/// Bytes of one base page.
pub const PAGE_BYTES: u64 = 4096;

/// Base pages in one 2 MiB block, the reach of one PTE table or one huge page.
pub const BLOCK_PAGES: u64 = 512;

/// First page number behind the address space of a program (47 bits of address on x86-64).
pub const ADDRESS_SPACE_PAGES: u64 = 1 << 35;

/// The 2 MiB block that holds `page`.
#[inline]
pub(super) fn block_of(page: u64) -> u64 {
    page / BLOCK_PAGES
}

/// The place of `page` inside its block, 0..512.
#[inline]
pub(super) fn index_of(page: u64) -> usize {
    (page % BLOCK_PAGES) as usize
}

/// The pages of `block`.
pub(super) fn pages_of(block: u64) -> Range<u64> {
    block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES
}

/// The blocks that hold at least one page of `range`.
pub(super) fn blocks_touching(range: &Range<u64>) -> Range<u64> {
    block_of(range.start)..range.end.div_ceil(BLOCK_PAGES)
}

/// The part of `range` that lies in `block`.
pub(super) fn clip(range: &Range<u64>, block: u64) -> Range<u64> {
    let pages = pages_of(block);
    range.start.max(pages.start)..range.end.min(pages.end)
}

/// Whether `pages` are all the pages of one block.
pub(super) fn is_whole_block(pages: &Range<u64>) -> bool {
    pages.start.is_multiple_of(BLOCK_PAGES) && pages.end - pages.start == BLOCK_PAGES
}

/// Whether `page` is the first one of a block.
pub(super) fn is_block_aligned(page: u64) -> bool {
    page.is_multiple_of(BLOCK_PAGES)
}

/// Whether both ranges share a page.
pub(super) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

//! Which touches of a page can still change something.
//!
//! One byte a page, in blocks made on first touch. A touch passes the filter unless the page saw one at least as
//! strong since it was last purged, mapped or moved. Passing too often costs time only: the kernel model decides.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use crate::hooks::Touch;

const BLOCK_PAGES: usize = 512;
const READ: u8 = 1;
const WRITTEN_ZERO: u8 = 2;
const WRITTEN: u8 = 4;

type Block = Box<[Cell<u8>; BLOCK_PAGES]>;

/// The filter over a whole reservation.
pub(crate) struct TouchFilter {
    blocks: Box<[OnceCell<Block>]>,
}

/// What a stored byte must contain for a touch to be without effect.
fn enough(touch: Touch) -> u8 {
    match touch {
        Touch::Read => READ | WRITTEN_ZERO | WRITTEN,
        Touch::WriteZero => WRITTEN_ZERO | WRITTEN,
        Touch::Write => WRITTEN,
    }
}

fn mark(touch: Touch) -> u8 {
    match touch {
        Touch::Read => READ,
        Touch::WriteZero => WRITTEN_ZERO,
        Touch::Write => WRITTEN,
    }
}

impl TouchFilter {
    pub(crate) fn new(pages: u64) -> TouchFilter {
        let blocks = (pages as usize).div_ceil(BLOCK_PAGES);
        TouchFilter { blocks: (0..blocks).map(|_| OnceCell::new()).collect() }
    }

    /// Notes a touch; whether it may change the page.
    #[inline(always)]
    pub(crate) fn passes(&self, page: u64, touch: Touch) -> bool {
        let slot = &self.blocks[page as usize / BLOCK_PAGES];
        let block = match slot.get() {
            Some(block) => block,
            None => slot.get_or_init(new_block),
        };
        let seen = &block[page as usize % BLOCK_PAGES];
        let before = seen.get();
        if before & enough(touch) != 0 {
            return false;
        }
        seen.set(before | mark(touch));
        true
    }

    /// Forgets pages that something happened to; `lost` is called for those that had been written.
    pub(crate) fn forget(&self, pages: Range<u64>, mut lost: impl FnMut(u64)) {
        let mut page = pages.start;
        while page < pages.end {
            let end = ((page / BLOCK_PAGES as u64 + 1) * BLOCK_PAGES as u64).min(pages.end);
            if let Some(block) = self.blocks[page as usize / BLOCK_PAGES].get() {
                for page in page..end {
                    if block[page as usize % BLOCK_PAGES].replace(0) & (WRITTEN | WRITTEN_ZERO) != 0 {
                        lost(page);
                    }
                }
            }
            page = end;
        }
    }
}

#[cold]
fn new_block() -> Block {
    Box::new([const { Cell::new(0) }; BLOCK_PAGES])
}

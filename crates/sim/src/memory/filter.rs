//! Filters out touches that cannot change a page's state.
//!
//! The filter has one byte per page of the reservation. Only the bytes near those of touched pages use memory. A touch
//! passes unless an equally strong touch has passed since the page was last purged, mapped or moved. Passing too many
//! touches only costs time, because the kernel model decides on their effect.

use std::cell::Cell;
use std::ops::Range;

use super::zeroed::zeroed_cells;
use crate::observer::Touch;

const READ: u8 = 1;
const WRITTEN_ZERO: u8 = 2;
const WRITTEN: u8 = 4;
/// Written, but the next touch must pass.
const KEPT: u8 = 8;
/// No access changes anything of the page: it was written, and contents are not tracked.
const SETTLED: u8 = 16;
const EVER_WRITTEN: u8 = WRITTEN | WRITTEN_ZERO | KEPT;

/// glibc gives a larger allocation a mapping of its own, which is zero. A smaller one may be memory of an earlier filter,
/// all of which `calloc` would clear.
const FRESH_BYTES: u64 = 33 << 20;

/// The filter over a whole reservation.
pub(crate) struct TouchFilter {
    pages: Box<[Cell<u8>]>,
}

/// The flags that make a touch have no effect.
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
        TouchFilter { pages: zeroed_cells(pages.max(FRESH_BYTES) as usize) }
    }

    /// Records a touch. Returns whether it may change the page.
    #[inline(always)]
    pub(crate) fn passes(&self, page: u64, touch: Touch) -> bool {
        let seen = &self.pages[page as usize];
        let before = seen.get();
        if before & enough(touch) != 0 {
            return false;
        }
        seen.set(before | mark(touch));
        true
    }

    /// Whether no access to a page would change anything of it.
    #[inline(always)]
    pub(crate) fn is_settled(&self, page: u64) -> bool {
        self.pages[page as usize].get() & SETTLED != 0
    }

    /// Records that this is so, until the page's state changes.
    pub(crate) fn settle(&self, page: u64) {
        let seen = &self.pages[page as usize];
        seen.set(seen.get() | SETTLED);
    }

    /// Whether a write to a page would have no effect.
    pub(crate) fn is_written(&self, page: u64) -> bool {
        self.pages[page as usize].get() & WRITTEN != 0
    }

    /// Lets the next touch of a page pass. The page still counts as written. Returns whether it was ever written.
    pub(crate) fn pass_again(&self, page: u64) -> bool {
        let seen = &self.pages[page as usize];
        let was_written = seen.get() & EVER_WRITTEN != 0;
        if was_written {
            seen.set(KEPT);
        }
        was_written
    }

    /// Resets pages whose state changed. Calls `lost` for each page that had been written.
    pub(crate) fn forget(&self, pages: Range<u64>, mut lost: impl FnMut(u64)) {
        for page in pages {
            let seen = &self.pages[page as usize];
            // Bytes that are already zero are not written, so that untouched parts of the table use no memory.
            if seen.get() != 0 && seen.replace(0) & EVER_WRITTEN != 0 {
                lost(page);
            }
        }
    }
}

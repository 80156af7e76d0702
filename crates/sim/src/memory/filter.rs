//! Which touches of a page can still change something.
//!
//! One byte a page of the reservation, of which only those near touched pages cost memory. A touch passes the filter
//! unless the page saw one at least as strong since it was last purged, mapped or moved. Passing too often costs time
//! only: the kernel model decides.

use std::cell::Cell;
use std::ops::Range;

use super::zeroed::zeroed_cells;
use crate::observer::Touch;

const READ: u8 = 1;
const WRITTEN_ZERO: u8 = 2;
const WRITTEN: u8 = 4;
/// Written, but the next touch counts.
const KEPT: u8 = 8;
const EVER_WRITTEN: u8 = WRITTEN | WRITTEN_ZERO | KEPT;

/// The filter over a whole reservation.
pub(crate) struct TouchFilter {
    pages: Box<[Cell<u8>]>,
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
        TouchFilter { pages: zeroed_cells(pages as usize) }
    }

    /// Notes a touch; whether it may change the page.
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

    /// Whether a write of a page would be without effect.
    pub(crate) fn is_written(&self, page: u64) -> bool {
        self.pages[page as usize].get() & WRITTEN != 0
    }

    /// Lets the next touch of a page pass. What was written there stays.
    pub(crate) fn pass_again(&self, page: u64) {
        let seen = &self.pages[page as usize];
        if seen.get() & EVER_WRITTEN != 0 {
            seen.set(KEPT);
        }
    }

    /// Forgets pages that something happened to; `lost` is called for those that had been written.
    pub(crate) fn forget(&self, pages: Range<u64>, mut lost: impl FnMut(u64)) {
        for page in pages {
            let seen = &self.pages[page as usize];
            // A byte that is zero stays untouched: it may lie where nothing ever was.
            if seen.get() != 0 && seen.replace(0) & EVER_WRITTEN != 0 {
                lost(page);
            }
        }
    }
}

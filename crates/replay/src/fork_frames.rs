//! The page frames of pages at the last scan, recorded since a fork. A page whose frame changed was copied.

use std::collections::BTreeMap;

use crate::page_snapshot::FRAME_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::PageMap;

/// The page-frame numbers of 2 MiB; 0 if there is no frame, or if the number is not readable.
pub(crate) type FrameNumbers = [u64; FRAME_PAGES];

/// Pages whose frame changed.
pub(crate) type Changed = [bool; FRAME_PAGES];

/// The page frames that are shared since the last fork, as of the last scan.
pub(crate) struct ForkFrames {
    known: BTreeMap<u64, Box<FrameNumbers>>,
    now: Box<FrameNumbers>,
    /// Whether the kernel reported any frame number.
    readable: bool,
}

impl ForkFrames {
    pub(crate) fn new() -> ForkFrames {
        ForkFrames { known: BTreeMap::new(), now: Box::new([0; FRAME_PAGES]), readable: false }
    }

    /// Records the page frames of the 2 MiB that begin at a page. Allocates.
    pub(crate) fn note(&mut self, map: &PageMap, frame: u64, first_page: u64) {
        let numbers = self.known.entry(frame).or_insert_with(|| Box::new([0; FRAME_PAGES]));
        map.frame_numbers(first_page, &mut numbers[..]);
        self.readable |= numbers.iter().any(|&number| number != 0);
    }

    /// The pages whose frame changed since the last call, so that each copy is reported once. Does not allocate.
    pub(crate) fn changed(&mut self, map: &PageMap, frame: u64, first_page: u64) -> Changed {
        let Some(before) = self.known.get_mut(&frame) else { return [false; FRAME_PAGES] };
        map.frame_numbers(first_page, &mut self.now[..]);
        let changed = std::array::from_fn(|at| before[at] != self.now[at]);
        std::mem::swap(before, &mut self.now);
        changed
    }

    /// Whether the kernel reports page-frame numbers. It does so only for root.
    pub(crate) fn are_readable(&self) -> bool {
        self.readable
    }
}

/// Drains this processor's folio batches. The kernel processes `MADV_FREE` in batches of 31 folios, and a pending batch
/// holds a reference to each. A write to such a page after a fork then copies it, even if the child has exited. Other
/// work on the processor also drains batches, so results would vary without this call.
pub(crate) fn drain_folio_batches() {
    let here = 0u8;
    let page = std::ptr::from_ref(&here).map_addr(|at| at & !(PAGE_BYTES as usize - 1));
    // SAFETY: the advice keeps the contents of this stack page. The kernel drains its batches before it examines the
    // page.
    unsafe { libc::madvise(page.cast_mut().cast(), PAGE_BYTES as usize, libc::MADV_COLD) };
}

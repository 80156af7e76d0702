//! The page frames of pages at the last scan, recorded from a fork on. A page whose frame changed since was copied.

use std::collections::BTreeMap;

use crate::page_snapshot::FRAME_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::PageMap;

/// The page-frame numbers of 2 MiB; 0 if there is no frame, or if the number is not readable.
pub(crate) type FrameNumbers = [u64; FRAME_PAGES];

/// Pages that are not what they were.
pub(crate) type Changed = [bool; FRAME_PAGES];

/// The page frames shared at the last fork, as of the last scan.
pub(crate) struct Shared {
    known: BTreeMap<u64, Box<FrameNumbers>>,
    now: Box<FrameNumbers>,
    /// The kernel told a number.
    told: bool,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared { known: BTreeMap::new(), now: Box::new([0; FRAME_PAGES]), told: false }
    }

    /// Notes what lies behind 2 MiB that begin at a page. It allocates.
    pub(crate) fn note(&mut self, map: &PageMap, frame: u64, first_page: u64) {
        let numbers = self.known.entry(frame).or_insert_with(|| Box::new([0; FRAME_PAGES]));
        map.frame_numbers(first_page, &mut numbers[..]);
        self.told |= numbers.iter().any(|&number| number != 0);
    }

    /// The pages whose frame is another one than at the last look, of which this is the next: a copy is told once. It allocates
    /// nothing.
    pub(crate) fn changed(&mut self, map: &PageMap, frame: u64, first_page: u64) -> Changed {
        let Some(before) = self.known.get_mut(&frame) else { return [false; FRAME_PAGES] };
        map.frame_numbers(first_page, &mut self.now[..]);
        let changed = std::array::from_fn(|at| before[at] != self.now[at]);
        std::mem::swap(before, &mut self.now);
        changed
    }

    /// Whether the kernel reports page-frame numbers, which it does only for root.
    pub(crate) fn is_told(&self) -> bool {
        self.told
    }
}
/// Has this processor let go of pages that `MADV_FREE` marked. The kernel marks them in lots of 31, and holds those of an unfinished lot as
/// if it were another owner; a write to one of them after a fork then copies it, although the child is gone. When a lot ends depends on
/// whatever else runs on the processor, so it is ended at once.
pub(crate) fn empty_free_list() {
    let here = 0u8;
    let page = std::ptr::from_ref(&here).map_addr(|at| at & !(PAGE_BYTES as usize - 1));
    // SAFETY: advice about a page of this thread's stack, whose contents stay. That it is used little changes nothing; the
    // kernel ends its lots before it looks.
    unsafe { libc::madvise(page.cast_mut().cast(), PAGE_BYTES as usize, libc::MADV_COLD) };
}

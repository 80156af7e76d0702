//! Page-frame numbers at the last scan, recorded after a fork. A page whose page frame has changed since was copied.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;

use crate::page_snapshot::FRAME_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::PageMap;

/// The page-frame number of each page of a frame (2 MiB); 0 if the page is absent or the number is not readable.
pub(crate) type FrameNumbers = [u64; FRAME_PAGES];

/// For each page of a frame, whether its page frame changed.
pub(crate) type Changed = [bool; FRAME_PAGES];

/// The page frames of the pages that the last fork shared, as of the last scan.
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

    /// Records the page frames of the 2 MiB that begin at `first_page`. Allocates memory.
    pub(crate) fn note(&mut self, map: &PageMap, frame: u64, first_page: u64) {
        let numbers = self.known.entry(frame).or_insert_with(|| Box::new([0; FRAME_PAGES]));
        map.frame_numbers(first_page, &mut numbers[..]);
        self.readable |= numbers.iter().any(|&number| number != 0);
    }

    /// The pages whose page frame changed since the last call for this frame. Each copy is therefore reported once.
    /// Does not allocate memory.
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
/// work on the processor also drains batches, so results would vary without this.
#[derive(Debug)]
pub(crate) struct BatchDrain {
    /// A page that is mapped but never present. `MADV_COLD` drains the batches before it examines pages, and there is
    /// nothing to examine. On a page of the stack it could split a large folio and replace its zero-filled pages.
    page: NonNull<libc::c_void>,
}

impl BatchDrain {
    /// # Errors
    /// No page can be mapped.
    pub(crate) fn new() -> io::Result<BatchDrain> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES as usize, libc::PROT_NONE, flags, -1, 0) };
        let page = NonNull::new(map).filter(|_| map != libc::MAP_FAILED);
        page.map(|page| BatchDrain { page }).ok_or_else(io::Error::last_os_error)
    }

    /// Drains the batches of the processor that the calling thread is on.
    pub(crate) fn drain(&self) {
        // SAFETY: the page is this value's own, and is never accessed.
        unsafe { libc::madvise(self.page.as_ptr(), PAGE_BYTES as usize, libc::MADV_COLD) };
    }
}

impl Drop for BatchDrain {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.page.as_ptr(), PAGE_BYTES as usize) };
    }
}

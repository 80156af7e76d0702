//! What the kernel says of the pages in a range: `PAGEMAP_SCAN` (Linux 6.7).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use hksim_drive::PageState;
use hksim_policy::PAGE_BYTES;

use crate::resident::{Resident, Zeroable};

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

// SAFETY: three integers.
unsafe impl Zeroable for Region {}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const IS_PRESENT: u64 = 1 << 3;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;
const REGIONS: usize = 4096;

/// Present pages in one state, as the kernel told. Reserved huge pages look like [`PageState::Thp`]: only who mapped
/// them knows better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// First page, in pages from address 0.
    pub(crate) first_page: u64,
    /// Page behind the last.
    pub(crate) end_page: u64,
    /// Their state.
    pub(crate) state: PageState,
}

/// Scans this process's page tables; allocates nothing.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: File,
    regions: Resident<Region>,
    failures: u64,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}..{:#x}: {:#x}", self.start, self.end, self.categories)
    }
}

impl PageMap {
    /// Opens the page tables of this process.
    ///
    /// # Errors
    /// Where the kernel has no such scan.
    pub(crate) fn open() -> io::Result<PageMap> {
        let mut map =
            PageMap { file: File::open("/proc/self/pagemap")?, regions: Resident::zeroed(REGIONS)?, failures: 0 };
        let probe = map.regions.as_ptr() as u64 / PAGE_BYTES;
        map.fill(probe, probe + 1)?;
        Ok(map)
    }

    /// The present pages of a range in ascending order. Pages count from address 0.
    pub(crate) fn scan(&mut self, first_page: u64, end_page: u64) -> Scan<'_> {
        Scan { map: self, at: first_page, end: end_page, filled: 0, next: 0 }
    }

    /// Scans that the kernel broke off; what they would have shown is missing.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Fills the regions; returns how many there are.
    fn fill(&mut self, first_page: u64, end_page: u64) -> io::Result<usize> {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: first_page * PAGE_BYTES,
            end: end_page * PAGE_BYTES,
            vec: self.regions.as_mut_ptr() as u64,
            vec_len: self.regions.len() as u64,
            category_mask: IS_PRESENT,
            return_mask: IS_PRESENT | IS_ZERO | IS_HUGE,
            ..ScanArgument::default()
        };
        // SAFETY: the kernel writes `vec_len` regions at most, into our own array, and the argument itself.
        let got = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }
}

/// A scan in progress.
pub(crate) struct Scan<'a> {
    map: &'a mut PageMap,
    at: u64,
    end: u64,
    filled: usize,
    next: usize,
}

impl Iterator for Scan<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        while self.next == self.filled {
            if self.at >= self.end {
                return None;
            }
            self.filled = match self.map.fill(self.at, self.end) {
                Ok(filled) => filled,
                Err(_) => {
                    self.map.failures += 1;
                    0
                }
            };
            self.next = 0;
            // The walk's end that the kernel reports is stale where its own buffer overflowed on the way to a complete
            // walk (seen on 6.18), so the last region tells how far a walk came that filled our buffer.
            self.at = match self.filled {
                REGIONS => self.map.regions[REGIONS - 1].end / PAGE_BYTES,
                _ => self.end,
            };
        }
        let region = self.map.regions[self.next];
        self.next += 1;
        let state = match (region.categories & IS_HUGE != 0, region.categories & IS_ZERO != 0) {
            (false, false) => PageState::Base,
            (false, true) => PageState::Zero,
            (true, false) => PageState::Thp,
            (true, true) => PageState::HugeZero,
        };
        Some(Seen { first_page: region.start / PAGE_BYTES, end_page: region.end / PAGE_BYTES, state })
    }
}

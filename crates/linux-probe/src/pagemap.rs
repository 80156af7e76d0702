//! Scans of a process's page tables (Linux 6.7): which pages of a range are present.

use std::fs::File;
use std::io;
use std::iter::Once;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::PAGE_BYTES;
use crate::resident::{Resident, Zeroable};
use crate::scan::{Categories, IS_HUGE, IS_PRESENT, IS_ZERO, PAGEMAP_SCAN, Region, Scan};

// SAFETY: a region is three integers.
unsafe impl Zeroable for Region {}

const REGIONS: usize = 4096;

/// A run of present pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentPages {
    /// First page, in pages from address 0.
    pub first_page: u64,
    /// The page after the last.
    pub end_page: u64,
    /// Mapped by 2 MiB entries. A scan does not distinguish transparent huge pages from hugetlb pages.
    pub is_huge: bool,
    /// The shared zero page, small or huge.
    pub is_zero: bool,
}

/// Scans a process's page tables; allocates nothing after it is opened.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    regions: Resident<Region>,
    failures: u64,
}

impl PageMap {
    /// Opens the page tables of this process.
    ///
    /// # Errors
    /// The kernel does not support these scans.
    pub fn open() -> io::Result<PageMap> {
        PageMap::of_file("/proc/self/pagemap")
    }

    /// Opens the page tables of another process.
    ///
    /// # Errors
    /// There is no such process, it may not be observed, or the kernel does not support these scans.
    pub fn of_process(pid: libc::pid_t) -> io::Result<PageMap> {
        PageMap::of_file(&format!("/proc/{pid}/pagemap"))
    }

    fn of_file(path: &str) -> io::Result<PageMap> {
        let mut map = PageMap { file: File::open(path)?, regions: Resident::zeroed(REGIONS)?, failures: 0 };
        // An address of this process; in another one it may hold nothing, which also is an answer.
        let probe = map.regions.as_ptr() as u64 / PAGE_BYTES;
        map.fill(probe, probe + 1)?;
        Ok(map)
    }

    /// The present pages of a range in ascending order. Page numbers are counted from address 0.
    pub fn scan(&mut self, first_page: u64, end_page: u64) -> PagesSeen<'_, Once<Range<u64>>> {
        self.scan_each(std::iter::once(first_page..end_page))
    }

    /// The present pages of many ranges, which must be in ascending order.
    pub fn scan_each<I: Iterator<Item = Range<u64>>>(&mut self, ranges: I) -> PagesSeen<'_, I> {
        PagesSeen { map: self, ranges, at: 0, end: 0, filled: 0, next: 0 }
    }

    /// The frame numbers of pages; 0 for absent pages, and for all if the user is not root.
    pub fn frame_numbers(&self, first_page: u64, into: &mut [u64]) {
        const PRESENT: u64 = 1 << 63;
        const NUMBER: u64 = (1 << 55) - 1;
        into.fill(0);
        let (bytes, at) = (size_of_val(into), (first_page * 8) as libc::off_t);
        // SAFETY: the kernel writes at most `bytes` bytes into the slice, and every `u64` is valid.
        unsafe { libc::pread(self.file.as_raw_fd(), into.as_mut_ptr().cast(), bytes, at) };
        into.iter_mut().for_each(|entry| *entry = if *entry & PRESENT != 0 { *entry & NUMBER } else { 0 });
    }

    /// The number of scans that the kernel aborted. Their pages are missing.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Scans a range into `regions`. Returns the number of regions found.
    fn fill(&mut self, first_page: u64, end_page: u64) -> io::Result<usize> {
        let categories =
            Categories { all_of: IS_PRESENT, returned: IS_PRESENT | IS_ZERO | IS_HUGE, ..Categories::default() };
        let (start, end) = (first_page * PAGE_BYTES, end_page * PAGE_BYTES);
        let mut request = Scan::new(start, end, categories, &mut self.regions);
        // SAFETY: the kernel writes at most the requested number of regions into our array, and updates the request.
        let got = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }
}

/// A scan in progress.
pub struct PagesSeen<'a, I> {
    map: &'a mut PageMap,
    ranges: I,
    at: u64,
    end: u64,
    filled: usize,
    next: usize,
}

impl<I: Iterator<Item = Range<u64>>> Iterator for PagesSeen<'_, I> {
    type Item = PresentPages;

    fn next(&mut self) -> Option<PresentPages> {
        while self.next == self.filled {
            if self.at >= self.end {
                let range = self.ranges.next()?;
                (self.at, self.end) = (range.start, range.end);
                continue;
            }
            self.filled = match self.map.fill(self.at, self.end) {
                Ok(filled) => filled,
                Err(_) => {
                    self.map.failures += 1;
                    0
                }
            };
            self.next = 0;
            let answers = &self.map.regions[..self.filled];
            self.at = Scan::resume_at(answers, REGIONS, self.end * PAGE_BYTES) / PAGE_BYTES;
        }
        let region = self.map.regions[self.next];
        self.next += 1;
        Some(PresentPages {
            first_page: region.start / PAGE_BYTES,
            end_page: region.end / PAGE_BYTES,
            is_huge: region.categories & IS_HUGE != 0,
            is_zero: region.categories & IS_ZERO != 0,
        })
    }
}

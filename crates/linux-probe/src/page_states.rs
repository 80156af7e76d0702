//! The states of another process's pages: present, swapped, zero and guard pages, and which are shared.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::PAGE_BYTES;
use crate::scan::{Categories, IS_GUARD, IS_HUGE, IS_PRESENT, IS_SWAPPED, IS_ZERO, PAGEMAP_SCAN, Region, Scan};

/// Results of one request.
const REGIONS: usize = 1024;
/// Pages of one request. The kernel holds the process's lock of mappings meanwhile.
const PAGES_AT_ONCE: u64 = 1 << 16;
/// Bits of an entry of `/proc/PID/pagemap` (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const EXCLUSIVE: u64 = 1 << 56;
const PRESENT: u64 = 1 << 63;
const FRAME_NUMBER: u64 = (1 << 55) - 1;

/// Pages that follow each other and are in the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesInState {
    /// The pages, counted from address 0.
    pub pages: Range<u64>,
    /// Their state.
    pub state: PageState,
}

/// The state of a page that is not absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// In memory, mapped by an entry of 4 KiB.
    Small,
    /// In memory, mapped by an entry of 2 MiB: a transparent huge page or one of the hugetlb pool.
    Huge,
    /// The shared zero page.
    Zero,
    /// The shared huge zero page, mapped by an entry of 2 MiB.
    HugeZero,
    /// Swapped out, or being moved.
    Swapped,
    /// A guard: `MADV_GUARD_INSTALL`.
    Guard,
}

/// The entry of one page in `/proc/PID/pagemap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// Whether the page is in memory.
    pub const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether no other process maps it. Never true of zero pages.
    pub const fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    /// Its frame; `None` if it is absent, or if this user is not root.
    pub const fn frame_number(self) -> Option<u64> {
        match self.0 & FRAME_NUMBER {
            0 => None,
            number if self.is_present() => Some(number),
            _ => None,
        }
    }
}

/// The page tables of a process.
#[derive(Debug)]
pub struct PageStates {
    file: File,
    sees_guards: bool,
}

impl PageStates {
    /// Opens the page tables of a process.
    ///
    /// # Errors
    /// There is no such process, this user may not observe it, or the kernel is older than 6.7.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let mut states = Self { file: File::open(format!("/proc/{pid}/pagemap"))?, sees_guards: true };
        let mut regions = [Region::default(); 1];
        // Kernels before 6.15 do not know guards, and refuse requests that name them.
        if states.request(0..1, &mut regions).is_err() {
            states.sees_guards = false;
            states.request(0..1, &mut regions)?;
        }
        Ok(states)
    }

    /// The pages of a range that are not absent, in ascending order.
    ///
    /// # Errors
    /// The process ended.
    pub fn in_range(&self, pages: Range<u64>) -> io::Result<Vec<PagesInState>> {
        let (mut found, mut at) = (Vec::new(), pages.start);
        let mut regions = vec![Region::default(); REGIONS];
        while at < pages.end {
            let end = pages.end.min(at + PAGES_AT_ONCE);
            let filled = self.request(at..end, &mut regions)?;
            found.extend(regions[..filled].iter().filter_map(PagesInState::of));
            at = Scan::resume_at(&regions[..filled], REGIONS, end * PAGE_BYTES) / PAGE_BYTES;
        }
        Ok(found)
    }

    /// The entries of a range of pages.
    ///
    /// # Errors
    /// The process ended.
    pub fn entries(&self, pages: Range<u64>) -> io::Result<Vec<Entry>> {
        let mut entries = vec![0; (pages.end - pages.start) as usize * 8];
        self.file.read_exact_at(&mut entries, pages.start * 8)?;
        Ok(entries.as_chunks().0.iter().map(|&entry| Entry(u64::from_ne_bytes(entry))).collect())
    }

    fn request(&self, pages: Range<u64>, regions: &mut [Region]) -> io::Result<usize> {
        let guard = if self.sees_guards { IS_GUARD } else { 0 };
        let any_of = IS_PRESENT | IS_SWAPPED | guard;
        let categories = Categories { all_of: 0, any_of, returned: any_of | IS_ZERO | IS_HUGE };
        let mut request = Scan::new(pages.start * PAGE_BYTES, pages.end * PAGE_BYTES, categories, regions);
        // SAFETY: the kernel writes at most as many regions as the array has, and updates the request.
        let got = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
    }
}

impl PagesInState {
    fn of(region: &Region) -> Option<Self> {
        let has = |category| region.categories & category != 0;
        let state = match (has(IS_PRESENT), has(IS_ZERO), has(IS_HUGE)) {
            _ if has(IS_GUARD) => PageState::Guard,
            (true, true, true) => PageState::HugeZero,
            (true, true, false) => PageState::Zero,
            (true, false, true) => PageState::Huge,
            (true, false, false) => PageState::Small,
            (false, ..) if has(IS_SWAPPED) => PageState::Swapped,
            _ => return None,
        };
        Some(Self { pages: region.start / PAGE_BYTES..region.end / PAGE_BYTES, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_own_pages_are_seen() {
        let Ok(states) = PageStates::of_process(std::process::id()) else {
            return println!("skipped: no PAGEMAP_SCAN (Linux 6.7)");
        };
        let bytes = 64 * PAGE_BYTES as usize;
        // SAFETY: a new mapping of this test, which is only accessed within its bounds and removed at the end.
        unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), bytes, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
            let memory = memory.cast::<u8>();
            for page in 10..20 {
                memory.add(page * 4096).write_volatile(1);
            }
            std::hint::black_box(memory.add(30 * 4096).read_volatile());
            let first = memory.addr() as u64 / PAGE_BYTES;
            let found = states.in_range(first..first + 64).expect("this process");
            let expected = [(10..20, PageState::Small), (30..31, PageState::Zero)];
            let expected =
                expected.map(|(pages, state)| PagesInState { pages: pages.start + first..pages.end + first, state });
            assert_eq!(found, expected);
            let entries = states.entries(first..first + 31).expect("this process");
            let exclusive: Vec<usize> = (0..31).filter(|&page| entries[page].is_exclusive()).collect();
            assert_eq!(exclusive, (10..20).collect::<Vec<_>>());
            assert!(entries[30].is_present(), "a zero page");
            libc::munmap(memory.cast(), bytes);
        }
    }
}

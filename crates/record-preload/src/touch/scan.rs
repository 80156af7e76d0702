//! Finds the present pages of the region: `PAGEMAP_SCAN` (Linux 6.7).

use core::sync::atomic::{AtomicI32, Ordering};

use hksim_linux_probe::scan::{Categories, IS_PRESENT, IS_SWAPPED, IS_ZERO, PAGEMAP_SCAN, Region, Scan};
use libc::c_int;

use crate::sys;
use crate::touch::region::{self, PAGE};

/// Maximum number of results of one call; they are on the program's stack.
const RUNS: usize = 32;
/// Lowest number of the recorder's descriptors. It is high because some programs expect particular low numbers.
const LEAST_FD: c_int = 900;

/// A run of adjacent pages in the same state.
pub struct Present {
    /// Number of the first page in the region.
    pub first_page: usize,
    /// Number of pages.
    pub pages: usize,
    /// Whether they map the kernel's zero page: read, never written.
    pub is_zero: bool,
}

/// Passes the runs of present pages among the `pages` pages from `page` to `each`, in order; false if the kernel cannot
/// report them. `pagemap` holds the descriptor of `/proc/self/pagemap`, initially 0.
pub fn each_present(pagemap: &AtomicI32, page: usize, pages: usize, mut each: impl FnMut(Present)) -> bool {
    let base = region::base() as u64;
    let (mut start, end) = (base + (page * PAGE) as u64, base + ((page + pages) * PAGE) as u64);
    while start < end {
        let mut runs = [Region::default(); RUNS];
        let Some(filled) = fill(pagemap, start, end, &mut runs) else {
            return false;
        };
        for run in runs.iter().take(filled) {
            let first_page = (run.start - base) as usize / PAGE;
            let pages = (run.end - run.start) as usize / PAGE;
            each(Present { first_page, pages, is_zero: run.categories & IS_ZERO != 0 });
        }
        start = Scan::resume_at(&runs[..filled.min(RUNS)], RUNS, end);
    }
    true
}

/// Fills `runs` and returns their number; `None` if the kernel cannot report them. A program that closes all
/// descriptors closes `pagemap` too, and may reuse its number. In this case a new descriptor is opened.
fn fill(pagemap: &AtomicI32, start: u64, end: u64, runs: &mut [Region]) -> Option<usize> {
    let known = pagemap.load(Ordering::Acquire);
    if known > 0
        && let Some(filled) = scan(known, start, end, runs)
    {
        return Some(filled);
    }
    // SAFETY: the path ends with a zero byte.
    let low = unsafe { sys::open(c"/proc/self/pagemap".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if low < 0 {
        return None;
    }
    let high = sys::duplicate_from(low, LEAST_FD);
    let fd = if high >= 0 { high } else { low };
    if high >= 0 {
        sys::close(low);
    }
    match pagemap.compare_exchange(known, fd, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => scan(fd, start, end, runs),
        Err(other) => {
            sys::close(fd);
            scan(other, start, end, runs)
        }
    }
}

fn scan(pagemap: c_int, start: u64, end: u64, runs: &mut [Region]) -> Option<usize> {
    let categories = Categories { all_of: 0, any_of: IS_PRESENT | IS_SWAPPED, returned: IS_PRESENT | IS_ZERO };
    let mut request = Scan::new(start, end, categories, runs);
    // SAFETY: the kernel writes the request and at most as many results as fit; other files' descriptors do not support
    // this request.
    let got = unsafe { sys::control(pagemap, PAGEMAP_SCAN, (&raw mut request).cast()) };
    usize::try_from(got).ok()
}

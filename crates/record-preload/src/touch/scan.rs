//! Which pages of the region are present: `PAGEMAP_SCAN` (Linux 6.7).

use core::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::sys;
use crate::touch::region::{self, PAGE};

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xC060_6610;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
/// Answers taken at a time; they stand on the program's stack.
const RUNS: usize = 32;
/// Descriptors of the recorder are put this high, out of the way of programs that expect low numbers.
const LEAST_FD: c_int = 900;

/// `struct page_region`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Run {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Argument {
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

/// Neighbouring pages in one state.
pub struct Present {
    /// The first, from the start of the region.
    pub first_page: usize,
    /// How many.
    pub pages: usize,
    /// Whether they are the kernel's page of zeros: read, never written.
    pub is_zero: bool,
}

/// Hands the present ones of some pages to `each`, in order; false if the kernel did not tell. `pagemap` keeps the
/// descriptor of the page tables, 0 at first.
pub fn each_present(pagemap: &AtomicI32, page: usize, pages: usize, mut each: impl FnMut(Present)) -> bool {
    let base = region::base() as u64;
    let (mut start, end) = (base + (page * PAGE) as u64, base + ((page + pages) * PAGE) as u64);
    while start < end {
        let mut runs = [Run { start: 0, end: 0, categories: 0 }; RUNS];
        let Some(filled) = fill(pagemap, start, end, &mut runs) else {
            return false;
        };
        for run in runs.iter().take(filled) {
            let first_page = (run.start - base) as usize / PAGE;
            let pages = (run.end - run.start) as usize / PAGE;
            each(Present { first_page, pages, is_zero: run.categories & IS_ZERO != 0 });
        }
        // The walk's end that the kernel reports can be stale, so the last answer tells how far a full array reaches.
        start = match runs.last() {
            Some(last) if filled == RUNS => last.end,
            _ => end,
        };
    }
    true
}

/// Fills `runs`; how many there are, or `None` if the kernel cannot tell. A program that closes all descriptors closes
/// this one too, and may open something else under its number: then another is opened.
fn fill(pagemap: &AtomicI32, start: u64, end: u64, runs: &mut [Run]) -> Option<usize> {
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

fn scan(pagemap: c_int, start: u64, end: u64, runs: &mut [Run]) -> Option<usize> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: runs.as_mut_ptr() as u64,
        vec_len: runs.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: 0,
        category_anyof_mask: IS_PRESENT | IS_SWAPPED,
        return_mask: IS_PRESENT | IS_ZERO,
    };
    // SAFETY: the kernel writes the argument and at most `vec_len` answers; another file's descriptor knows no such request.
    let got = unsafe { sys::control(pagemap, PAGEMAP_SCAN, (&raw mut argument).cast()) };
    usize::try_from(got).ok()
}

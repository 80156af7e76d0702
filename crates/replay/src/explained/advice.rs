//! Huge pages as under THP mode `always`, by advice on every mapping of the allocator. The advice needs no rights, and
//! the kernel treats an advised mapping in mode `madvise` as it treats each mapping in mode `always`.

use std::io;

use hksim_linux_probe::resident::MAP_HARNESS;
use libc::c_long;

use super::intercept::{self, Intercepted};

/// Advises private anonymous memory that exists, except memory of the replay: that has the advice against huge pages.
pub(super) fn advise_existing() -> io::Result<()> {
    let smaps = std::fs::read_to_string("/proc/self/smaps")?;
    let mut range = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag: &str| flags.split(' ').any(|word| word == flag);
            if let Some((start, bytes)) = range.take().filter(|_| !has("nh") && !has("sh") && !has("gd")) {
                advise(start, bytes);
            }
        } else if let Some(found) = anonymous(line) {
            range = Some(found);
        }
    }
    Ok(())
}

/// Address and size of a mapping without a file, from its first line.
fn anonymous(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let is_anonymous = fields.nth(3)? == "0" && matches!(fields.next(), None | Some("[heap]"));
    is_anonymous.then_some((start, end - start))
}

/// Advises the memory that a call has mapped.
pub(super) fn advise_result(call: &Intercepted, result: c_long, heap_end_before: u64) {
    let [_, bytes, _, flags, ..] = call.arguments;
    match call.number {
        // The replay's own memory has the advice against huge pages.
        libc::SYS_mmap
            if result > 0 && flags as libc::c_int & (libc::MAP_ANONYMOUS | MAP_HARNESS) == libc::MAP_ANONYMOUS =>
        {
            advise(result as u64, bytes);
        }
        libc::SYS_brk if result as u64 > heap_end_before => {
            let start = heap_end_before.next_multiple_of(hksim_policy::PAGE_BYTES);
            advise(start, (result as u64).saturating_sub(start));
        }
        _ => {}
    }
}

/// A refusal leaves the mapping as it is.
fn advise(start: u64, bytes: u64) {
    // SAFETY: the advice changes no contents.
    unsafe { intercept::call(libc::SYS_madvise, [start, bytes, libc::MADV_HUGEPAGE as u64, 0, 0, 0]) };
}

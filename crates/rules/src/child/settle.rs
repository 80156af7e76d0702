//! Makes the process's own memory present, so that it takes no faults while it measures.

use hksim_linux::resident::make_resident;

/// Where arenas and fillers end: everything of the process's own lies above, or below where they begin.
const OWN_BELOW: u64 = 0x1000_0000_0000;
const OWN_ABOVE: u64 = 0x2001_0000_0000;

/// Makes everything present but the arena, the filler, and what cannot be touched.
pub(super) fn settle() {
    // Without the list the pages are taken as they come, and comparisons fail.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, bytes, mode) in maps.lines().filter_map(parse) {
        if (OWN_BELOW..OWN_ABOVE).contains(&start) {
            continue;
        }
        if mode.starts_with("rw") {
            make_resident(start as *const u8, bytes);
        } else if mode.starts_with('r') {
            // SAFETY: populating for reading changes no contents.
            unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_POPULATE_READ) };
        }
    }
}

/// Start, length, permissions.
fn parse(line: &str) -> Option<(u64, usize, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some((start, (end - start) as usize, rest.get(..4)?))
}

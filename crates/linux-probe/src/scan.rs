//! The structures of `PAGEMAP_SCAN` (Linux 6.7, `include/uapi/linux/fs.h`), a request on `/proc/PID/pagemap` that lists
//! ranges of pages by category.

/// `_IOWR('f', 16, struct pm_scan_arg)`.
pub const PAGEMAP_SCAN: u64 = 0xC060_6610;
/// `PAGE_IS_PRESENT`: the page is in memory.
pub const IS_PRESENT: u64 = 1 << 3;
/// `PAGE_IS_SWAPPED`.
pub const IS_SWAPPED: u64 = 1 << 4;
/// `PAGE_IS_PFNZERO`: the shared zero page, small or huge.
pub const IS_ZERO: u64 = 1 << 5;
/// `PAGE_IS_HUGE`: mapped by a 2 MiB entry.
pub const IS_HUGE: u64 = 1 << 6;
/// `PAGE_IS_GUARD`: `MADV_GUARD_INSTALL` (Linux 6.15).
pub const IS_GUARD: u64 = 1 << 8;

/// `struct page_region`: adjacent pages of the same categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// Address of the first page.
    pub start: u64,
    /// Address after the last page.
    pub end: u64,
    /// The requested categories that apply.
    pub categories: u64,
}

/// `struct pm_scan_arg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Scan {
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

/// Which pages a scan lists, and what it reports about them: `IS_*`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Categories {
    /// All of these categories must apply.
    pub all_of: u64,
    /// If any are given, at least one of these categories must apply.
    pub any_of: u64,
    /// The categories that are reported.
    pub returned: u64,
}

impl Scan {
    /// A scan of the addresses `start..end`; it writes at most as many results as `regions` has elements.
    pub fn new(start: u64, end: u64, categories: Categories, regions: &mut [Region]) -> Self {
        Self {
            size: size_of::<Self>() as u64,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            category_mask: categories.all_of,
            category_anyof_mask: categories.any_of,
            return_mask: categories.returned,
            ..Self::default()
        }
    }

    /// The address at which to continue after a scan that wrote `filled` to an array of `room` elements. This is `end`
    /// if the scan was complete.
    ///
    /// The kernel's `walk_end` is not used: it is stale if the kernel's own buffer overflowed during a complete walk
    /// (seen on 6.18). Instead, if the array is full, the scan continues after its last region.
    pub fn resume_at(filled: &[Region], room: usize, end: u64) -> u64 {
        match filled.last() {
            Some(last) if filled.len() == room => last.end,
            _ => end,
        }
    }
}

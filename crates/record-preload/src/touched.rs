//! The file, next to the log, in which the recorder stores the states of watched pages (`--accesses pages`).
//!
//! Each watched object is alone on fresh pages of one region, at addresses that are never reused. So a page of the
//! region belongs to one object forever, and one byte per page holds its final state ([`PAGE_UNKNOWN`] and following).
//! The bytes start at [`STATES_OFFSET`], in the order of the pages. The file is sparse.
//!
//! This file is compiled into the preloaded object and into `hksim-record`. It uses `core` and a constant of
//! `hksim-linux-probe`.

pub use hksim_linux_probe::PAGE_BYTES;

/// Suffix of the file's name; replaces that of the log.
pub const TOUCHED_SUFFIX: &str = ".touched";
/// The environment variable that enables watching; its value is the N of "one object in N".
pub const SAMPLE_VARIABLE: &str = "HKSIM_RECORD_SAMPLE";
/// First bytes of the file.
pub const TOUCHED_MAGIC: u64 = u64::from_le_bytes(*b"hktouch1");

/// Lowest address of a region. If it is in use, the next multiples of [`REGION_BYTES`] are tried, [`REGION_PLACES`]
/// addresses in all. The kernel never chooses addresses there: programs and their mappings are at 0x55.. and 0x7f...
pub const REGION_BASE: u64 = 0x2000_0000_0000;
/// Bytes of address space of a region.
pub const REGION_BYTES: u64 = 1 << 40;
/// Number of places tried for a region.
pub const REGION_PLACES: u64 = 16;
/// Objects of at least this size are all watched.
pub const WATCHED_BYTES_MIN: u64 = PAGE_BYTES;

/// Offset of the states in the file.
pub const STATES_OFFSET: u64 = 4096;
/// Unknown: the process was killed or could not read the state.
pub const PAGE_UNKNOWN: u8 = 0;
/// Never touched.
pub const PAGE_ABSENT: u8 = 1;
/// Read but never written: maps the zero page.
pub const PAGE_READ: u8 = 2;
/// Written; perhaps read before.
pub const PAGE_WRITTEN: u8 = 3;

/// The start of the file.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TouchedControl {
    /// [`TOUCHED_MAGIC`].
    pub magic: u64,
    /// First address of the region; 0 if there is none.
    pub region_base: u64,
    /// First page of the region that this process allocated; lower pages belong to the process that forked it.
    pub first_page: u64,
    /// Start of the instructions that copy a resized object; their accesses are the recorder's own.
    pub copy_start: u64,
    /// End of these instructions.
    pub copy_end: u64,
    /// Sampling interval of objects below [`WATCHED_BYTES_MIN`]: one in `sample` is watched.
    pub sample: u64,
    /// Objects that were not watched because the region was used up.
    pub turned_down: u64,
    /// Pages whose state could not be read or stored.
    pub states_lost: u64,
    /// 1 if the process, at its end, has read the states of all pages of live objects.
    pub looked_at_end: u64,
}

const _: () = assert!(size_of::<TouchedControl>() <= STATES_OFFSET as usize);

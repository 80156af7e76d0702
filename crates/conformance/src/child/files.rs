//! The file that scripts map, and which pages of the arena map it.
//!
//! The model does not model such pages, so touches skip them and reports leave them out.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hksim_linux_mm::script::ARENA_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use libc::c_int;

/// The end of the first line of a file mapping in smaps.
const IN_SMAPS: &[u8] = b"/memfd:hksim-rules-file (deleted)";
const NAME: &std::ffi::CStr = c"hksim-rules-file";

/// Pages from one mapping's offset in the file to the next one's. More than an arena, so adjacent mappings of two
/// operations have no contiguous offsets and never merge.
const STEP_PAGES: u64 = 2 * ARENA_PAGES;
const FILE_BYTES: u64 = 1 << 40;

/// Pages of the arena that map the file.
static MAPPED: [AtomicBool; ARENA_PAGES as usize] = [const { AtomicBool::new(false) }; ARENA_PAGES as usize];
/// Mappings that the script created so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A sparse file in memory.
#[derive(Debug)]
pub(super) struct MappedFile(OwnedFd);

impl MappedFile {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: the name is a string.
        let got = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let file = Self(unsafe { OwnedFd::from_raw_fd(got) });
        file.clear()?;
        Ok(file)
    }

    pub(super) fn descriptor(&self) -> c_int {
        self.0.as_raw_fd()
    }

    /// Drops the file's pages, and forgets all mappings. Call this before a script.
    pub(super) fn clear(&self) -> io::Result<()> {
        COUNT.store(0, Ordering::Relaxed);
        for bytes in [0, FILE_BYTES] {
            // SAFETY: touches no memory of this process.
            if unsafe { libc::ftruncate(self.descriptor(), bytes as libc::off_t) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        forget_pages();
        Ok(())
    }
}

/// The offset in the file of the next mapping, in bytes.
pub(super) fn next_offset() -> libc::off_t {
    (COUNT.fetch_add(1, Ordering::Relaxed) * STEP_PAGES * PAGE_BYTES) as libc::off_t
}

/// Whether a page of the arena maps the file.
pub(super) fn is_mapped(page: u64) -> bool {
    MAPPED.get(page as usize).is_some_and(|mapped| mapped.load(Ordering::Relaxed))
}

/// Forgets which pages map the file.
pub(super) fn forget_pages() {
    MAPPED.iter().for_each(|mapped| mapped.store(false, Ordering::Relaxed));
}

/// Notes that these pages of the arena map the file.
pub(super) fn note_pages(pages: std::ops::Range<u64>) {
    for mapped in MAPPED.iter().take(pages.end as usize).skip(pages.start as usize) {
        mapped.store(true, Ordering::Relaxed);
    }
}

/// Whether this is the first line of a file mapping in smaps.
pub(super) fn is_first_line(line: &[u8]) -> bool {
    line.ends_with(IN_SMAPS)
}

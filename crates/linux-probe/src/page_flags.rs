//! What lies behind a page frame: /proc/kpageflags, which only root may read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bits of an entry (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;

/// A page frame's part in its folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioPart {
    /// It is a folio of its own.
    Single,
    /// The first of several.
    Head,
    /// A later one.
    Tail,
}

/// The flags of all page frames. Reading them allocates nothing.
#[derive(Debug)]
pub struct PageFlags {
    file: File,
}

impl PageFlags {
    /// Opens the flags.
    ///
    /// # Errors
    /// For one who is not root.
    pub fn open() -> io::Result<PageFlags> {
        let flags = PageFlags { file: File::open("/proc/kpageflags")? };
        flags.part(0)?;
        Ok(flags)
    }

    /// The part of the frame with this number.
    ///
    /// # Errors
    /// Where there is no such frame.
    pub fn part(&self, frame_number: u64) -> io::Result<FolioPart> {
        let mut entry = [0; 8];
        self.file.read_exact_at(&mut entry, frame_number * 8)?;
        let flags = u64::from_ne_bytes(entry);
        Ok(if flags & COMPOUND_HEAD != 0 {
            FolioPart::Head
        } else if flags & COMPOUND_TAIL != 0 {
            FolioPart::Tail
        } else {
            FolioPart::Single
        })
    }
}

//! Flags of page frames: /proc/kpageflags, which only root may read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bits of an entry (the kernel's `Documentation/admin-guide/mm/pagemap.rst`).
const ANONYMOUS: u64 = 1 << 12;
const SWAP_BACKED: u64 = 1 << 14;
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;

/// Position of a page frame in its folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolioPart {
    /// The only page of its folio.
    Single,
    /// The first of several pages.
    Head,
    /// A later page.
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
    /// The user is not root.
    pub fn open() -> io::Result<PageFlags> {
        let flags = PageFlags { file: File::open("/proc/kpageflags")? };
        flags.part(0)?;
        Ok(flags)
    }

    /// The position of this page frame in its folio.
    ///
    /// # Errors
    /// The frame does not exist.
    pub fn part(&self, frame_number: u64) -> io::Result<FolioPart> {
        let flags = self.flags(frame_number)?;
        Ok(if flags & COMPOUND_HEAD != 0 {
            FolioPart::Head
        } else if flags & COMPOUND_TAIL != 0 {
            FolioPart::Tail
        } else {
            FolioPart::Single
        })
    }

    /// Whether a page frame holds anonymous memory that was given up with `MADV_FREE`, and not written since. The kernel
    /// marks the last few pages of each processor late.
    ///
    /// # Errors
    /// The frame does not exist.
    pub fn is_lazily_freed(&self, frame_number: u64) -> io::Result<bool> {
        Ok(self.flags(frame_number)? & (ANONYMOUS | SWAP_BACKED) == ANONYMOUS)
    }

    fn flags(&self, frame_number: u64) -> io::Result<u64> {
        let mut entry = [0; 8];
        self.file.read_exact_at(&mut entry, frame_number * 8)?;
        Ok(u64::from_ne_bytes(entry))
    }
}

//! Makes the process's own memory present, so that it causes no faults while it measures.

use std::io;

use hksim_linux_probe::maps::Maps;
use hksim_linux_probe::resident::make_resident;

/// A page that the kernel lists although it is not a mapping of the process.
const VSYSCALL: &str = "[vsyscall]";

/// One of the process's own mappings.
#[derive(Clone, Copy, Debug)]
struct Own {
    start: usize,
    bytes: usize,
    is_writable: bool,
}

/// The process's own mappings: all except the arena and the fillers.
///
/// The list is read before a script begins. Reading it later could need a new mapping for its text. The script may have
/// reached `max_map_count` by then, and an additional mapping would change the compared figures.
#[derive(Debug, Default)]
pub(super) struct OwnMemory {
    readable: Vec<Own>,
    mappings: u64,
}

impl OwnMemory {
    /// Records the current mappings. Call this while there is no arena and no filler.
    pub(super) fn note(&mut self) -> io::Result<()> {
        self.readable.clear();
        let maps = Maps::read()?;
        self.mappings = maps.iter().filter(|map| map.name != VSYSCALL).count() as u64;
        let readable = maps.iter().filter(|map| map.is_readable);
        self.readable.extend(readable.map(|map| Own {
            start: map.start,
            bytes: map.bytes,
            is_writable: map.is_writable,
        }));
        Ok(())
    }

    /// Number of recorded mappings, unreadable ones included.
    pub(super) fn mappings(&self) -> u64 {
        self.mappings
    }

    /// Makes all recorded mappings present, in this process or in a forked child.
    pub(super) fn make_resident(&self) {
        for own in &self.readable {
            if own.is_writable {
                make_resident(own.start as *const u8, own.bytes);
            } else {
                // SAFETY: populating for reading changes no contents.
                unsafe { libc::madvise(own.start as *mut libc::c_void, own.bytes, libc::MADV_POPULATE_READ) };
            }
        }
    }
}

//! Makes the process's own memory present, so that it takes no faults while it measures.

use std::io;

use hksim_linux_probe::resident::make_resident;

/// Where the kernel lists a page that no process has mapped.
const VSYSCALL: &str = "[vsyscall]";

/// A mapping of the process's own.
#[derive(Clone, Copy, Debug)]
struct Own {
    start: u64,
    bytes: usize,
    is_writable: bool,
}

/// The process's own mappings: all that is there without arena and filler.
///
/// They are noted before a script begins. After a fork the list would have to be read while it may be full, when there is neither a mapping
/// for its text nor one to spare in what is compared.
#[derive(Debug, Default)]
pub(super) struct OwnMemory {
    readable: Vec<Own>,
    mappings: u64,
}

impl OwnMemory {
    /// Notes what is mapped now. To be called while there is no arena and no filler.
    pub(super) fn note(&mut self) -> io::Result<()> {
        self.readable.clear();
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        self.mappings = maps.lines().filter(|line| !line.ends_with(VSYSCALL)).count() as u64;
        self.readable.extend(maps.lines().filter_map(parse));
        Ok(())
    }

    /// Mappings noted, those that cannot be read among them.
    pub(super) fn mappings(&self) -> u64 {
        self.mappings
    }

    /// Makes everything noted present, in this process or in a child that it forked.
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

/// A line of the list; `None` for what cannot be read.
fn parse(line: &str) -> Option<Own> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let is_readable = rest.starts_with('r');
    is_readable.then(|| Own { start, bytes: (end - start) as usize, is_writable: rest.starts_with("rw") })
}

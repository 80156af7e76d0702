//! Counts of the system calls of a process's allocator, by kind.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use hksim_policy::{Errno, InvalidFree};

use crate::errno::keeping_errno;
use crate::os::{self, Os, Syscalls};
use crate::process::invalid_free::report_invalid_free;

/// Kinds of calls, in the order of the report.
pub(crate) const KINDS: [&str; 12] = [
    "mmap",
    "mmap_populate",
    "mmap_hugetlb",
    "mmap_hugetlb_populate",
    "munmap",
    "mremap",
    "madvise_hugepage",
    "madvise_dontneed",
    "madvise_free",
    "madvise_populate",
    "madvise_collapse",
    "mlock",
];

/// Counts of the calls of one kind.
pub(crate) struct Count {
    pub(crate) ok: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Whether calls of this kind return memory to the kernel.
    pub(crate) gives_back: bool,
}

impl Count {
    const fn new(gives_back: bool) -> Count {
        Count { ok: AtomicU64::new(0), failed: AtomicU64::new(0), gives_back }
    }
}

/// The counts, in the order of [`KINDS`].
pub(crate) static CALLS: [Count; KINDS.len()] = [
    Count::new(false),
    Count::new(false),
    Count::new(false),
    Count::new(false),
    Count::new(true),
    Count::new(false),
    Count::new(false),
    Count::new(true),
    Count::new(true),
    Count::new(false),
    Count::new(false),
    Count::new(false),
];

/// Makes and counts the system calls. Keeps `errno`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountedSyscalls;

fn counted<T>(kind: usize, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let result = keeping_errno(call);
    let count = &CALLS[kind];
    let of = if result.is_ok() { &count.ok } else { &count.failed };
    of.fetch_add(1, Ordering::Relaxed);
    result
}

fn kind_of(mapping: Mapping) -> usize {
    match mapping {
        Mapping::Plain => 0,
        Mapping::Populated => 1,
        Mapping::Hugetlb => 2,
        Mapping::HugetlbPopulated => 3,
    }
}

impl Os for CountedSyscalls {
    /// `config.rs` rejects policies in which SuperSlabs have separate mappings.
    const OWN_MAPPINGS: bool = false;

    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        counted(kind_of(mapping), || unsafe { Syscalls.map(at, bytes, mapping) })
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        counted(kind_of(mapping), || Syscalls.map_anywhere(bytes, mapping))
    }

    fn invalid_free(&self, address: NonNull<u8>, superslab: NonNull<u8>, ordinal: u32, what: InvalidFree) {
        report_invalid_free(address, superslab, ordinal, what);
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        counted(4, || unsafe { Syscalls.unmap(at, bytes) })
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        let kind = match advice {
            Advice::HugePage | Advice::NoHugePage => 6,
            Advice::DontNeed => 7,
            Advice::Free => 8,
            Advice::PopulateRead | Advice::PopulateWrite => 9,
            Advice::Collapse => 10,
        };
        // SAFETY: the caller's promise.
        counted(kind, || unsafe { Syscalls.advise(at, bytes, advice) })
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        counted(5, || unsafe { Syscalls.remap(from, bytes, to) })
    }

    unsafe fn lock(&self, at: NonNull<u8>, bytes: usize, locking: Locking) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        counted(11, || unsafe { os::lock(at, bytes, locking) })
    }

    /// Does nothing: `process/locking.rs` locks the process's other memory.
    fn lock_process(&self, _lock: MemoryLock) -> Result<(), Errno> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        Syscalls.now_ns()
    }
}

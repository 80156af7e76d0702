//! Counts the system calls of a replay, and gives the allocator the trace's clock.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hksim_engine::OsCalls;
use hksim_native::{Os, Syscalls};
use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Mapping};

/// [`Syscalls`] with counters; its clock is the time of the newest event.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    mmap: AtomicU64,
    munmap: AtomicU64,
    madvise: AtomicU64,
    mremap: AtomicU64,
    failed: AtomicU64,
    now_ns: AtomicU64,
}

impl Counted {
    /// Calls so far, except the `mmap` of a reservation.
    pub(crate) fn calls(&self) -> OsCalls {
        OsCalls {
            mmap: self.mmap.load(Relaxed),
            munmap: self.munmap.load(Relaxed),
            madvise: self.madvise.load(Relaxed),
            mremap: self.mremap.load(Relaxed),
        }
    }
}

impl Counted {
    /// Calls that the kernel refused.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Counts an `mremap`, which `call` makes.
    pub(crate) fn counting_mremap(&self, call: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        self.mremap.fetch_add(1, Relaxed);
        self.noted(call())
    }

    fn noted<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        if result.is_err() {
            self.failed.fetch_add(1, Relaxed);
        }
        result
    }
}

impl Os for Counted {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        self.mmap.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        self.noted(unsafe { Syscalls.map(at, bytes, mapping) })
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        self.mmap.fetch_add(1, Relaxed);
        self.noted(Syscalls.map_anywhere(bytes, mapping))
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        self.munmap.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        self.noted(unsafe { Syscalls.unmap(at, bytes) })
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        self.madvise.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller.
        self.noted(unsafe { Syscalls.advise(at, bytes, advice) })
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        self.counting_mremap(|| unsafe { Syscalls.remap(from, bytes, to) })
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        // With real threads, events arrive out of order; the clock never goes backwards.
        if self.now_ns.load(Relaxed) < now_ns {
            self.now_ns.store(now_ns, Relaxed);
        }
    }
}

//! What a placement tells the world below it: page touches and OS calls, with their reasons.
//!
//! The allocator runs on [`SimMemory`](crate::memory::SimMemory), which turns its memory accesses into *hooks*. A
//! kernel model consumes them. The memory filters touches that cannot change a page, so a consumer sees few, and one
//! placement can feed as many kernels as agree on what is purged.

use std::ops::Range;

use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};

use crate::accounting::Accounting;
use crate::reach::TlbMisses;
use hksim_linux_mm::Content;

/// Why a page was touched. Installs are attributed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The application used its block.
    Application,
    /// A block header was read or written.
    Header,
    /// A free-list link was written.
    Link,
    /// SuperSlab, heap or arena metadata was written.
    Metadata,
    /// calloc zeroed a block.
    Zeroing,
    /// realloc copied a block.
    Copy,
    /// The policy prefaulted by hand.
    Prefault,
}

/// How a page was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A load.
    Read,
    /// A store of zeros.
    WriteZero,
    /// A store of something else.
    Write,
}

/// A consumer of placement hooks. Pages are 4 KiB, numbered from address 0: where each lies is known by then.
pub trait MemoryObserver {
    /// Whether every access is wanted (a TLB model does), or only those that may change a page.
    const EVERY_ACCESS: bool;

    /// A page is touched: the first time, or the first time since something happened to it.
    fn touch(&mut self, page: u64, touch: Touch, cause: Cause);

    /// Pages are accessed; called for every access if [`MemoryObserver::EVERY_ACCESS`].
    fn access(&mut self, pages: Range<u64>, cause: Cause);

    /// The reservation itself is mapped, before anything else.
    fn reserve(&mut self, pages: Range<u64>);

    /// `mmap(MAP_FIXED)`.
    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno>;

    /// `mmap` at an address that the kernel chooses; its first page.
    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno>;

    /// `munmap` of pages that were mapped too much, so that SuperSlabs could be aligned.
    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno>;

    /// `munmap`.
    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno>;

    /// Whether a page holds anything but zeros: told before an advice that may split a huge page, where contents are
    /// kept at all.
    fn content(&mut self, page: u64, content: Content);

    /// `madvise`.
    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno>;

    /// `mlockall` or `munlockall`, as far as it changes what is mapped from now on, and unlocks what is mapped.
    fn lock_process(&mut self, lock: MemoryLock);

    /// `mlock2`.
    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno>;

    /// `mremap` of `pages` to a fixed place.
    fn remap(&mut self, pages: Range<u64>, to: u64) -> Result<(), Errno>;
}

/// A consumer that a report can be made from.
pub trait AccountingObserver: MemoryObserver {
    /// Its accounts.
    fn accounting(&self) -> &Accounting;

    /// The same, to tell them what no access tells.
    fn accounting_mut(&mut self) -> &mut Accounting;

    /// Its TLB's hits and misses, if it has one.
    fn misses(&self) -> Option<TlbMisses> {
        None
    }
}

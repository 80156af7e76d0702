//! The interface between the simulated memory and a kernel model: page touches and OS calls, with their causes.
//!
//! The SuperSlab allocator runs on [`SimMemory`](crate::memory::SimMemory), any other on
//! [`SimSpace`](crate::space::SimSpace). Both report memory accesses to a [`MemoryObserver`] such as a kernel model. The memory filters out touches that cannot change a page, so an observer
//! sees few of them. One placement can feed several kernel models if they agree on what is purged.

use std::ops::Range;

pub use hksim_engine::{Cause, Touch};
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use hksim_policy::{Errno, Path};

use crate::accounting::Accounting;
use crate::lines::LineCounts;
use crate::miss_curves::MissCurves;
use crate::paths::PathCounts;
use crate::reach::TlbLookups;
use hksim_linux_mm::Content;

/// Which accesses an observer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accesses {
    /// Only those that may change a page. They are reported as touches.
    Changing,
    /// As [`Accesses::Changing`], and writes to metadata are told from reads where the kernel's state depends on it: after a
    /// fork, and after the split of a huge page.
    ChangingMetadata,
    /// Every access, except that of several in a row to one cache line only the first is needed. Not the number of its
    /// event.
    Lines,
    /// Every access.
    Every,
}

impl Accesses {
    /// Whether accesses are needed that change no page.
    pub const fn any(self) -> bool {
        matches!(self, Accesses::Lines | Accesses::Every)
    }

    /// Whether writes to metadata are told from reads.
    pub const fn metadata_writes(self) -> bool {
        matches!(self, Accesses::ChangingMetadata | Accesses::Every)
    }

    /// Whether every single access is needed.
    pub const fn every(self) -> bool {
        matches!(self, Accesses::Every)
    }
}

/// Observes page touches and OS calls of a placement. Pages are 4 KiB and numbered from address 0. Designs that share a
/// placement share an observer, too, until their page operations differ; a clone then continues from the same state.
pub trait MemoryObserver: Clone {
    /// Which accesses the observer needs: a TLB model all of them, the kernel only those that may change a page.
    const ACCESSES: Accesses;
    /// Whether the paths of the allocator's code are counted.
    const COUNTS_PATHS: bool = false;

    /// A page operation ran a path of the allocator's code, if [`MemoryObserver::COUNTS_PATHS`].
    fn page_path(&mut self, _path: Path, _times: u64) {}

    /// Sets the number of events performed so far. Called before any other method.
    fn set_events(&mut self, _events: u64) {}

    /// Called when a page is touched for the first time, or for the first time since its state changed.
    fn touch(&mut self, page: u64, touch: Touch, cause: Cause);

    /// Touches pages one after the other, to prefault them.
    fn prefault(&mut self, pages: Range<u64>) {
        pages.for_each(|page| self.touch(page, Touch::WriteZero, Cause::Prefault));
    }

    /// Called for accesses to bytes, at least one, of the simulated address space: those that
    /// [`MemoryObserver::ACCESSES`] asks for.
    fn access(&mut self, bytes: Range<u64>, cause: Cause);

    /// As [`MemoryObserver::access`], for the allocator's tables that are not on its fast paths: the arena table, the
    /// pool's control block and the heads of message queues.
    fn access_table(&mut self, _bytes: Range<u64>) {}

    /// `mmap` of the reservation. Called first.
    fn reserve(&mut self, pages: Range<u64>);

    /// `mmap(MAP_FIXED)`.
    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno>;

    /// `mmap` without a hint; returns the first page.
    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno>;

    /// `munmap` of the excess pages of a mapping that was made larger for alignment.
    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno>;

    /// `munmap`.
    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno>;

    /// Reports the content of a page, if contents are tracked. Called before an `madvise` that may split a huge page.
    fn content(&mut self, page: u64, content: Content);

    /// The pages outside `pages` that share a large folio with a page in `pages`. A split of the folio changes them,
    /// too.
    fn folio_pages_outside(&self, pages: &Range<u64>) -> Vec<u64>;

    /// `madvise`.
    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno>;

    /// `mlockall` or `munlockall`: sets the locking of future mappings, and unlocks existing ones.
    fn lock_process(&mut self, lock: MemoryLock);

    /// `mlock2`.
    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno>;

    /// `mremap` of `old`, so that it becomes `new`: moved, if the starts differ, and resized, if the lengths do.
    fn remap(&mut self, old: Range<u64>, new: Range<u64>) -> Result<(), Errno>;
}

/// An observer that provides the accounting for a report.
pub trait AccountingObserver: MemoryObserver {
    /// The accounting.
    fn accounting(&self) -> &Accounting;

    /// The accounting, for events that are not accesses.
    fn accounting_mut(&mut self) -> &mut Accounting;

    /// A fork after `event` events. `pages` are all pages of the program. The caller must then let the next write to each
    /// page pass its touch filter.
    fn fork(&mut self, event: u64, pages: &[Range<u64>]) {
        self.accounting_mut().fork(event, pages);
    }

    /// TLB hits and misses, if the observer models a TLB.
    fn misses(&self) -> Option<TlbLookups> {
        None
    }

    /// The paths of the allocator's code that page operations ran, if they are counted.
    fn page_paths(&self) -> PathCounts {
        PathCounts::default()
    }

    /// Accesses to cache lines, if the observer models caches.
    fn lines(&self) -> Option<LineCounts> {
        None
    }

    /// TLB misses by size, if the observer models a TLB.
    fn miss_curves(&self) -> Option<MissCurves> {
        None
    }
}

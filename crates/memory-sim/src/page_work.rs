//! The kernel's work in an address space: what the kernel model counts, calls, and how far apart first touches are.

use hksim_linux_mm::{Kernel, PMD_PAGES, PageOperations, RefaultsByKind};
use serde::{Deserialize, Serialize};

use crate::steps::Action;

/// A first touch that follows the previous one sooner than this continues a loop over memory.
const FILLING_NS: u64 = 3_000;
/// A first touch that follows the previous one later than this finds the kernel's fault path out of the caches.
const APART_NS: u64 = 100_000;

/// First touches by the time since the previous one, in the recording. Observing a fault takes 1 to 2 us, so the limits
/// are coarse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spacing {
    /// All first touches.
    pub touches: u64,
    /// Less than 3 us after the previous one.
    pub filling: u64,
    /// More than 100 us after the previous one.
    pub apart: u64,
}

impl Spacing {
    /// Counts a first touch `gap_ns` after the previous one.
    pub(crate) fn add(&mut self, gap_ns: u64) {
        self.touches += 1;
        self.filling += u64::from(gap_ns < FILLING_NS);
        self.apart += u64::from(gap_ns > APART_NS);
    }
}

/// Calls that change memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Calls that map: mmap and brk.
    pub map_calls: u64,
    /// Calls of munmap.
    pub unmap_calls: u64,
    /// Calls of madvise.
    pub madvise_calls: u64,
    /// Calls of mremap.
    #[serde(default)]
    pub remap_calls: u64,
}

impl Calls {
    /// Counts a call.
    pub(crate) fn add(&mut self, action: &Action) {
        match action {
            Action::Advise { .. } => self.madvise_calls += 1,
            Action::Unmap(_) => self.unmap_calls += 1,
            Action::Remap { .. } => self.remap_calls += 1,
            Action::Map { .. } | Action::GrowHeap { .. } | Action::MapOutside { .. } => self.map_calls += 1,
            _ => {}
        }
    }
}

/// Pages present at the exit, which the kernel drops then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtExit {
    /// Pages of 4 KiB.
    pub pages: u64,
    /// Of those, pages of a larger folio.
    #[serde(default)]
    pub folio_pages: u64,
    /// Huge pages.
    pub huge_pages: u64,
    /// Pages of the hugetlb pool.
    pub hugetlb_pages: u64,
}

impl AtExit {
    /// What is present now.
    pub(crate) fn of(kernel: &Kernel) -> Self {
        let huge_pages = kernel.huge_pages();
        Self {
            pages: kernel.rss_pages() - huge_pages * PMD_PAGES,
            folio_pages: kernel.folio_pages(),
            huge_pages,
            hugetlb_pages: kernel.hugetlb_pages(),
        }
    }
}

/// Counts of the kernel's operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageWork {
    /// First touches that installed something.
    pub spacing: Spacing,
    /// Pages dropped, marked, moved, collapsed and copied.
    pub operations: PageOperations,
    /// Installs of memory that the process had before.
    pub refaults: RefaultsByKind,
    /// What was dropped at the exit.
    pub at_exit: AtExit,
    /// Calls.
    #[serde(flatten)]
    pub calls: Calls,
}

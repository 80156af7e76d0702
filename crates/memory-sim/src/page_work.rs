//! The kernel's work in an address space, as counts of operations that have a measurable cost.

use std::collections::BTreeMap;

use hksim_linux_mm::{Install, InstallKind, InstallRun, Kernel, PAGE_BYTES, PMD_PAGES};
use serde::Serialize;

use crate::steps::Action;

/// A first touch that follows the previous one sooner than this continues a loop over memory.
const FILLING_NS: u64 = 3_000;
/// A first touch that follows the previous one later than this finds the kernel's fault path out of the caches.
const APART_NS: u64 = 100_000;

/// First touches by the time since the previous one, in the recording. Observing a fault takes 1 to 2 us, so the limits
/// are coarse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spacing {
    /// All first touches.
    pub touches: u64,
    /// Less than 3 us after the previous one.
    pub filling: u64,
    /// More than 100 us after the previous one.
    pub apart: u64,
}

/// Counts of the kernel's operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageWork {
    /// First touches that installed something.
    pub spacing: Spacing,
    /// Pages of 4 KiB, huge pages included, that calls populated.
    pub populated_pages: u64,
    /// Folios between 16 KiB and 1 MiB, by size in bytes.
    pub mthp_by_bytes: BTreeMap<u64, u64>,
    /// Pages that replaced a page shared after a fork.
    pub copies_after_fork: u64,
    /// Page tables allocated, in bytes.
    pub page_table_bytes_allocated: u64,
    /// Pages of 4 KiB dropped by `MADV_DONTNEED`, and huge pages.
    pub madv_dontneed_pages: u64,
    /// Huge pages dropped by `MADV_DONTNEED`.
    pub madv_dontneed_huge_pages: u64,
    /// Pages of 4 KiB dropped by munmap and by mappings over others.
    pub unmapped_pages: u64,
    /// Huge pages dropped by munmap and by mappings over others.
    pub unmapped_huge_pages: u64,
    /// Calls that map: mmap and brk.
    pub map_calls: u64,
    /// Calls of munmap.
    pub unmap_calls: u64,
    /// Calls of madvise.
    pub madvise_calls: u64,
    /// Forks.
    pub forks: u64,
    /// Resident pages of the parent at its forks.
    pub forked_pages: u64,
}

/// The state of an address space before an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    small_pages: u64,
    huge_pages: u64,
    page_table_bytes: u64,
}

impl Before {
    pub fn of(kernel: &Kernel) -> Self {
        let huge_pages = kernel.huge_pages();
        let small_pages = kernel.rss_pages() - huge_pages * PMD_PAGES;
        Self { small_pages, huge_pages, page_table_bytes: kernel.page_table_bytes() }
    }
}

impl PageWork {
    /// Counts a first touch that installed something `gap_ns` after the previous one.
    pub(crate) fn touched(&mut self, install: Install, gap_ns: u64, had_zero_page: bool) {
        self.spacing.touches += 1;
        self.spacing.filling += u64::from(gap_ns < FILLING_NS);
        self.spacing.apart += u64::from(gap_ns > APART_NS);
        match install.kind {
            InstallKind::Mthp => *self.mthp_by_bytes.entry(install.pages * PAGE_BYTES).or_default() += 1,
            InstallKind::Cow if !had_zero_page => self.copies_after_fork += 1,
            _ => {}
        }
    }

    /// Counts what a call populated.
    pub(crate) fn populated(&mut self, runs: &[InstallRun]) {
        self.populated_pages += runs.iter().map(|run| run.pages).sum::<u64>();
    }

    /// Counts the effects of an operation.
    pub(crate) fn after(&mut self, action: &Action, before: Before, kernel: &Kernel) {
        let now = Before::of(kernel);
        self.page_table_bytes_allocated += now.page_table_bytes.saturating_sub(before.page_table_bytes);
        let small = before.small_pages.saturating_sub(now.small_pages);
        let huge = before.huge_pages.saturating_sub(now.huge_pages);
        match action {
            Action::Advise { .. } => {
                self.madvise_calls += 1;
                self.madv_dontneed_pages += small;
                self.madv_dontneed_huge_pages += huge;
            }
            Action::Unmap(_) => {
                self.unmap_calls += 1;
                self.unmapped_pages += small;
                self.unmapped_huge_pages += huge;
            }
            Action::Map { .. } | Action::GrowHeap { .. } | Action::MapOutside { .. } => {
                self.map_calls += 1;
                self.unmapped_pages += small;
                self.unmapped_huge_pages += huge;
            }
            _ => {}
        }
    }

    /// Counts a fork.
    pub(crate) fn forked(&mut self, kernel: &Kernel) {
        self.forks += 1;
        self.forked_pages += kernel.rss_pages();
    }
}

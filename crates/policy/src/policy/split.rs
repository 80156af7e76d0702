//! The two halves of a policy: what decides where blocks are placed, and what decides which page operations are made.
//!
//! The allocator's code sees only [`Placement`]. What it needs to know of [`Paging`] it asks through
//! [`Memory::perform`](crate::memory::Memory::perform), so a backend can run one placement under many paging policies,
//! and notice where their answers differ.

use crate::limits::HUGE_PAGE_BYTES;
use crate::metadata::meta::Pages;
pub use crate::policy::settings::{Paging, Placement};
use crate::policy::vocabulary::{Align, Huge, Prefault, Purge};

impl Paging {
    /// Whether unused memory is returned to the kernel.
    #[inline]
    pub fn purges(&self) -> bool {
        self.purge != Purge::None
    }

    /// Whether empty spans of a SuperSlab in use are purged.
    #[inline]
    pub fn purges_spans(&self) -> bool {
        self.purges() && (self.purge_spans || self.huge == Huge::Never)
    }

    /// Whether huge blocks and heaps reuse each other's present memory ([run cache](crate::arena::run_cache)).
    pub(crate) fn shares_runs(&self, placement: &Placement) -> bool {
        let has_huge_pages = match self.huge {
            Huge::Thp | Huge::System | Huge::Hugetlb | Huge::HugetlbPlain => true,
            Huge::Never | Huge::Collapse => false,
        };
        has_huge_pages
            && self.huge_page_bytes == placement.superslab_bytes
            && placement.align == Align::Arena
            && self.prefault == Prefault::Off
    }

    /// The page size for the first SuperSlab of the heap in slot `heap` ([huge heaps](crate::heap::huge_heaps)).
    pub(crate) fn first_pages(&self, placement: &Placement, heap: u32) -> Pages {
        if self.chooses_pages(placement) && heap >= self.huge_heaps { Pages::Small } else { Pages::Huge }
    }

    /// The page size for a SuperSlab of which blocks can fill this many bytes ([huge fill](crate::heap::huge_fill)).
    pub(crate) fn pages_if_filled(&self, placement: &Placement, bytes: u64) -> Pages {
        let least_bytes = placement.superslab_bytes * u64::from(self.huge_fill_percent) / 100;
        if self.chooses_pages(placement) && bytes < least_bytes { Pages::Small } else { Pages::Huge }
    }

    /// Whether the page size is chosen for each SuperSlab. Otherwise SuperSlabs share a huge page, or are present anyway.
    fn chooses_pages(&self, placement: &Placement) -> bool {
        self.huge == Huge::Thp && self.prefault == Prefault::Off && self.huge_page_bytes <= placement.superslab_bytes
    }

    /// The number of SuperSlabs that must be purged together, because they share a hugetlb page; at least 1.
    pub(crate) fn purge_group(&self, placement: &Placement) -> u32 {
        if self.huge.is_hugetlb() { ((HUGE_PAGE_BYTES / placement.superslab_bytes) as u32).max(1) } else { 1 }
    }
}

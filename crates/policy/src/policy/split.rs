//! The two halves of a policy: what decides where blocks are placed, and what decides which page operations are made.
//!
//! The allocator's code sees only [`Placement`]. What it needs to know of [`Paging`] it asks through
//! [`Memory::perform`](crate::memory::Memory::perform), so a backend can run one placement under many paging policies,
//! and notice where their answers differ.

use crate::limits::HUGE_PAGE_BYTES;
use crate::metadata::meta::Pages;
use crate::policy::Policy;
use crate::policy::vocabulary::{
    Align, Carve, FreeOrder, Header, Huge, MetaPlace, Prefault, PrefaultScope, Purge, PurgeCurve, SizeClasses,
    SlabChoice,
};

/// The settings that the placement of blocks depends on. Fields are those of [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "documented in Policy")]
pub struct Placement {
    pub superslab_bytes: u64,
    pub slab_bytes: u64,
    pub classes: SizeClasses,
    pub header: Header,
    pub header_bytes: u32,
    pub prewarm_superslabs: u32,
    pub cache_superslabs: u32,
    pub purge_delay_ns: u64,
    pub purge_curve: PurgeCurve,
    pub warm_slabs: u32,
    pub align: Align,
    pub meta: MetaPlace,
    pub carve: Carve,
    pub free_order: FreeOrder,
    pub slab_choice: SlabChoice,
    pub front_cache: u32,
    pub startup_touch_bytes: u64,
    pub huge_cache_bytes: u64,
    pub arena_bytes: u64,
}

/// The settings that decide which page operations are made. Placement depends on them only through their answers: what
/// a purge leaves behind, which SuperSlabs may be shared. Fields are those of [`Policy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "documented in Policy")]
pub struct Paging {
    pub huge: Huge,
    pub huge_page_bytes: u64,
    pub huge_heaps: u32,
    pub huge_fill_percent: u32,
    pub prefault: Prefault,
    pub prefault_scope: PrefaultScope,
    pub purge: Purge,
    pub purge_spans: bool,
}

impl Policy {
    /// The two halves. Every field belongs to exactly one of them.
    pub const fn split(&self) -> (Placement, Paging) {
        // No `..` here: whoever adds a field decides which half it belongs to.
        let &Policy {
            superslab_bytes,
            slab_bytes,
            classes,
            header,
            header_bytes,
            huge,
            huge_page_bytes,
            prefault,
            prefault_scope,
            prewarm_superslabs,
            cache_superslabs,
            huge_heaps,
            huge_fill_percent,
            purge,
            purge_delay_ns,
            purge_curve,
            purge_spans,
            warm_slabs,
            align,
            meta,
            carve,
            free_order,
            slab_choice,
            front_cache,
            startup_touch_bytes,
            huge_cache_bytes,
            arena_bytes,
        } = self;
        let placement = Placement {
            superslab_bytes,
            slab_bytes,
            classes,
            header,
            header_bytes,
            prewarm_superslabs,
            cache_superslabs,
            purge_delay_ns,
            purge_curve,
            warm_slabs,
            align,
            meta,
            carve,
            free_order,
            slab_choice,
            front_cache,
            startup_touch_bytes,
            huge_cache_bytes,
            arena_bytes,
        };
        let paging = Paging {
            huge,
            huge_page_bytes,
            huge_heaps,
            huge_fill_percent,
            prefault,
            prefault_scope,
            purge,
            purge_spans,
        };
        (placement, paging)
    }
}

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

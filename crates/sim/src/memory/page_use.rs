//! What a page is used for at the moment.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_policy::meta::Use;

use super::{BASE_PAGE, ENTRIES_PER_PAGE, SimMemory};
use crate::observer::MemoryObserver;

/// What a page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageUse {
    /// A slab with blocks of this many bytes.
    Slab(u32),
    /// A large block: a span of its own in a SuperSlab.
    Large,
    /// A huge block: one or more SuperSlabs of its own.
    Huge,
    /// The allocator's metadata: that of a SuperSlab, thread heaps, the arena table.
    Metadata,
    /// No block has been placed here since the memory was reserved, purged or freed.
    Unused,
    /// Memory of an allocator that does not describe what it uses its pages for.
    Undescribed,
}

/// A place in the allocator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The page, numbered from the start of the allocator's memory. `None` if no mapping of the allocator contains it.
    pub page: Option<u64>,
    /// The SuperSlab; `None` for the allocator's tables, and for allocators without SuperSlabs.
    pub superslab: Option<u32>,
    /// What the page is used for.
    pub page_use: PageUse,
}

impl<H: MemoryObserver> SimMemory<H> {
    /// Describes a page of the simulated address space. Touches nothing.
    pub fn place_of(&self, page: u64) -> Place {
        let unmapped = Place { page: None, superslab: None, page_use: PageUse::Unused };
        self.number_of(page).map_or(unmapped, |number| self.place_numbered(number))
    }

    /// Describes a page that is numbered from the start of the reservation.
    pub fn place_numbered(&self, number: u64) -> Place {
        let superslab = self.superslab_of(number);
        let page_use = superslab.map_or(PageUse::Metadata, |superslab| self.use_in(superslab, number));
        Place { page: Some(number), superslab, page_use }
    }

    /// The number of a page from the start of the reservation; `None` if the allocator has no mapping there.
    fn number_of(&self, page: u64) -> Option<u64> {
        if self.reserved().contains(&page) {
            return Some(page - BASE_PAGE);
        }
        let bound = |(_, pages): &(u64, Range<u64>)| pages.contains(&page);
        self.mapped_ranges().find(bound).map(|(first, pages)| first + page - pages.start)
    }

    /// The SuperSlab of a page that is numbered from the start of the reservation; `None` before the arena.
    pub fn superslab_of(&self, number: u64) -> Option<u32> {
        let at = (number * PAGE_BYTES).checked_sub(self.layout.arena)?;
        u32::try_from(at >> self.layout.superslab_shift).ok()
    }

    fn use_in(&self, ordinal: u32, number: u64) -> PageUse {
        let entries = self.table.get(ordinal as usize / ENTRIES_PER_PAGE).and_then(|page| page.get());
        match entries.map_or(Use::Free, |entries| entries[ordinal as usize % ENTRIES_PER_PAGE].usage()) {
            Use::Huge | Use::HugeTail => PageUse::Huge,
            Use::Slabs | Use::Abandoned => self.use_in_slabs(ordinal, number),
            Use::Free | Use::Idle | Use::Warm | Use::HugeIdle | Use::Lost => PageUse::Unused,
        }
    }

    /// The use of a page in a SuperSlab of slabs and large spans. A page that two spans share has the use of the second,
    /// unless that is unused.
    fn use_in_slabs(&self, ordinal: u32, number: u64) -> PageUse {
        let Some(superslab) = self.superslabs[ordinal as usize].get() else { return PageUse::Unused };
        let offset = number * PAGE_BYTES - self.layout.superslab_of(ordinal);
        if self.is_meta_in_band() && offset < u64::from(self.layout.meta_bytes) {
            return PageUse::Metadata;
        }
        let slice_bytes = (1u64 << self.layout.superslab_shift) / u64::from(self.slices);
        let slice = (offset / slice_bytes) as u32;
        if superslab.meta.free.get(slice) {
            return PageUse::Unused;
        }
        let back = u32::from(superslab.slices[slice as usize].meta.span_back.get());
        let span = &superslab.slices[slice.saturating_sub(back) as usize].meta;
        if span.is_large() { PageUse::Large } else { PageUse::Slab(span.stride.get()) }
    }
}

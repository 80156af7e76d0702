//! Addresses of SuperSlabs with separate mappings, in both directions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use super::{BASE_PAGE, SimMemory};
use crate::observer::MemoryObserver;

const UNBOUND: u64 = u64::MAX;

/// The table. Pages are numbered from address 0.
pub(super) struct Bindings {
    superslab_pages: u64,
    /// First page, by ordinal.
    by_ordinal: Box<[Cell<u64>]>,
    /// Ordinal, by first page.
    by_page: RefCell<BTreeMap<u64, u32>>,
}

impl Bindings {
    pub(super) fn new(ordinals: u32, superslab_pages: u64) -> Bindings {
        let by_ordinal = (0..ordinals).map(|_| Cell::new(UNBOUND)).collect();
        Bindings { superslab_pages, by_ordinal, by_page: RefCell::default() }
    }

    pub(super) fn bind(&self, ordinal: u32, first_page: u64) {
        self.by_ordinal[ordinal as usize].set(first_page);
        self.by_page.borrow_mut().insert(first_page, ordinal);
    }

    pub(super) fn unbind(&self, ordinal: u32) {
        let first_page = self.by_ordinal[ordinal as usize].replace(UNBOUND);
        self.by_page.borrow_mut().remove(&first_page);
    }

    /// The first page of a SuperSlab, if it is bound.
    pub(super) fn first_page(&self, ordinal: u32) -> Option<u64> {
        Some(self.by_ordinal[ordinal as usize].get()).filter(|&page| page != UNBOUND)
    }

    /// Translates a page of the arena to its page in the address space.
    #[inline]
    pub(super) fn page_of(&self, arena_page: u64) -> u64 {
        let (ordinal, at) = (arena_page / self.superslab_pages, arena_page % self.superslab_pages);
        let first = self.by_ordinal[ordinal as usize].get();
        assert!(first != UNBOUND, "SuperSlab {ordinal} is used but has no address");
        first + at
    }

    /// Whether a SuperSlab starts at this page.
    pub(super) fn is_bound_at(&self, page: u64) -> bool {
        self.by_page.borrow().contains_key(&page)
    }

    /// The pages of the arena that are inside a range of the address space.
    pub(super) fn named_within(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        let lowest = (pages.start + 1).saturating_sub(self.superslab_pages);
        let by_page = self.by_page.borrow();
        let within = by_page.range(lowest..pages.end).map(|(&first, &ordinal)| {
            let end = (first + self.superslab_pages).min(pages.end);
            let start = u64::from(ordinal) * self.superslab_pages + pages.start.saturating_sub(first);
            start..start + end - pages.start.max(first)
        });
        within.collect()
    }
}

impl<H: MemoryObserver> SimMemory<H> {
    /// All mapped ranges, in the order of their names: the name of the first page, and the pages in the simulated
    /// address space. A page's name is its number from the start of the reservation.
    pub fn mapped_ranges(&self) -> impl Iterator<Item = (u64, Range<u64>)> + '_ {
        let superslab_pages = (1 << self.layout.superslab_shift) / PAGE_BYTES;
        let ordinals = self.bindings.iter().flat_map(|_| 0..self.pool.high_water.get());
        let bound = ordinals.filter_map(move |ordinal| {
            let first = self.bindings.as_ref()?.first_page(ordinal)?;
            Some((self.layout.superslab_of(ordinal) / PAGE_BYTES, first..first + superslab_pages))
        });
        std::iter::once((0, self.reserved())).chain(bound)
    }

    /// Translates an offset from the start of the reservation to an address of the simulated address space.
    #[inline(always)]
    pub(super) fn address_at(&self, at: u64) -> u64 {
        match self.bindings {
            Some(_) => self.page_at(at / PAGE_BYTES) * PAGE_BYTES + at % PAGE_BYTES,
            None => BASE_PAGE * PAGE_BYTES + at,
        }
    }
}

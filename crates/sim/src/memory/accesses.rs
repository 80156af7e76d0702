//! Reports accesses to the observers: touches that may change a page, and the accesses that an observer asks for.

use hksim_policy::PAGE_BYTES;

use super::meta_tracker::MetaItem;
use super::{KEY_BYTES, LINK_BYTES, SimMemory};
use crate::lines::LINE_BYTES;
use crate::observer::{Cause, MemoryObserver, Touch};

impl<H: MemoryObserver> SimMemory<H> {
    /// Touches `bytes` bytes at `at`, an offset from the start of the reservation.
    #[inline(always)]
    pub(super) fn touch(&self, at: u64, bytes: u64, touch: Touch, cause: Cause) {
        let (first, last) = (at / PAGE_BYTES, (at + bytes - 1) / PAGE_BYTES);
        let mut page = first;
        while page <= last {
            if self.filter.passes(page, touch) {
                self.pass_on(page, touch, cause);
            }
            page += 1;
        }
        self.accessed(at, bytes, cause);
    }

    /// Reports an access to `bytes` bytes at `at`, an offset from the start of the reservation, to an observer that
    /// needs it.
    #[inline(always)]
    pub(super) fn accessed(&self, at: u64, bytes: u64, cause: Cause) {
        if H::ACCESSES.any() {
            let start = self.address_at(at);
            // The number of the event takes as long as most accesses do.
            let mut observer =
                if H::ACCESSES.every() { self.observed(&self.observer) } else { self.observer.borrow_mut() };
            observer.access(start..start + bytes, cause);
        }
    }

    /// Reports accesses to the link and the key of a free block at `at`: one to the link, then `to_key` to the key. An
    /// observer that does not need every single one gets one to both.
    #[inline(always)]
    pub(super) fn accessed_link(&self, at: u64, to_key: u32) {
        if !H::ACCESSES.every() {
            return self.accessed(at, LINK_BYTES + KEY_BYTES, Cause::FreeList);
        }
        let (link, mut observer) = (self.address_at(at), self.observed(&self.observer));
        let key = link + LINK_BYTES;
        observer.access(link..key, Cause::FreeList);
        for _ in 0..to_key {
            observer.access(key..key + KEY_BYTES, Cause::FreeList);
        }
    }

    /// As `accessed`, for tables that are not on the allocator's fast paths.
    pub(super) fn accessed_table(&self, item: MetaItem) {
        if H::ACCESSES.any() {
            let (at, bytes) = self.extent(item);
            let start = self.address_at(at);
            self.observed(&self.observer).access_table(start..start + bytes);
        }
        self.remember(|| item);
    }

    #[cold]
    #[inline(never)]
    fn pass_on(&self, page: u64, touch: Touch, cause: Cause) {
        if touch == Touch::Write && self.contents.is_none() {
            self.filter.settle(page);
        }
        let page = self.page_at(page);
        self.each_observer(|observer| observer.touch(page, touch, cause));
    }

    /// Whether accesses inside the page of `at`, a byte of the reservation, change nothing of the page.
    #[inline(always)]
    pub(super) fn is_settled(&self, at: u64) -> bool {
        self.filter.is_settled(at / PAGE_BYTES)
    }

    #[inline(always)]
    pub(super) fn observe_meta(&self, item: impl Fn() -> MetaItem) {
        self.note_meta_access();
        if H::ACCESSES.any() {
            let (at, bytes) = self.extent(item());
            // Of a header's lines, most accesses use the first one only.
            self.accessed(at, bytes.min(LINE_BYTES), Cause::Metadata);
        }
        self.remember(item);
    }
}

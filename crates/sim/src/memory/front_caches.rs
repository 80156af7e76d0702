//! The front caches of thread heaps: their pages are touched when an entry is first written.

use std::cell::OnceCell;

use hksim_policy::PAGE_BYTES;
use hksim_policy::field::Field;
use hksim_policy::layout::{FRONT_ENTRY_BYTES, Layout};

use super::SimMemory;
use super::meta_tracker::MetaItem;
use crate::observer::{Cause, MemoryObserver, Touch};

/// Entries on one page.
const ENTRIES_PER_PAGE: u64 = PAGE_BYTES / FRONT_ENTRY_BYTES;

/// The entries on one page.
type EntryPage = Box<[Field<u64>]>;

/// The entries of all heaps, by page.
pub(super) struct FrontCaches(Box<[OnceCell<EntryPage>]>);

impl FrontCaches {
    pub(super) fn new(layout: &Layout) -> FrontCaches {
        FrontCaches((0..(layout.table - layout.front_caches) / PAGE_BYTES).map(|_| OnceCell::new()).collect())
    }
}

impl<H: MemoryObserver> SimMemory<H> {
    /// The value of an entry, without an access; 0 if its page was never used.
    pub(super) fn front_value(&self, heap: u32, index: u32) -> u64 {
        let (page, slot) = self.front_place(heap, index);
        self.front_caches.0[page].get().map_or(0, |entries| entries[slot].get())
    }

    /// The page of an entry, and its place there.
    fn front_place(&self, heap: u32, index: u32) -> (usize, usize) {
        let number = (self.layout.front_entry_of(heap, index) - self.layout.front_caches) / FRONT_ENTRY_BYTES;
        ((number / ENTRIES_PER_PAGE) as usize, (number % ENTRIES_PER_PAGE) as usize)
    }

    /// The entry `index` of a heap's front cache. The first access to a page is a write.
    pub(super) fn front_entry(&self, heap: u32, index: u32) -> &Field<u64> {
        let (at, (page, slot)) = (self.layout.front_entry_of(heap, index), self.front_place(heap, index));
        let entries = self.front_caches.0[page].get_or_init(|| {
            self.touch(at, FRONT_ENTRY_BYTES, Touch::Write, Cause::Metadata);
            (0..ENTRIES_PER_PAGE).map(|_| Field::new(0)).collect()
        });
        self.accessed(at, FRONT_ENTRY_BYTES, Cause::Metadata);
        self.remember(|| MetaItem::FrontEntry(heap, index));
        &entries[slot]
    }
}

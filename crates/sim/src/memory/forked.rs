//! The memory after a fork: the next write to each page must be reported, including writes to metadata.

use hksim_policy::PAGE_BYTES;
use std::ops::Range;

use hksim_policy::layout::{FRONT_ENTRY_BYTES, HEAP_BYTES, SPANS_AT};
use hksim_policy::meta::{ENTRY_BYTES, PoolMeta, SpanMeta};

use super::meta_tracker::{self, MetaItem};
use super::{ENTRIES_PER_PAGE, SimMemory};
use crate::observer::{Cause, MemoryObserver, Touch};

/// Bytes of a remote word.
const WORD_BYTES: u64 = 8;

impl<H: MemoryObserver> SimMemory<H> {
    /// A fork has write-protected these pages (numbered from the start of the reservation): the next write to each
    /// passes the filter. From now on metadata writes are distinguished from reads, if the observer needs that.
    pub fn forked(&self, pages: Range<u64>) {
        self.meta_tracker.switch_on();
        for page in pages {
            self.filter.pass_again(page);
        }
    }

    /// Finds the metadata written since the last call, and touches its pages.
    pub fn flush_meta_writes(&self) {
        if self.tracks_meta() && !self.meta_tracker.is_empty() {
            self.touch_changed();
            self.meta_tracker.clear();
        }
    }

    /// Whether writes to metadata are detected.
    #[inline(always)]
    fn tracks_meta(&self) -> bool {
        H::ACCESSES.metadata_writes() && self.meta_tracker.is_on()
    }

    fn touch_changed(&self) {
        for item in self.meta_tracker.take_changed(|item| self.digest(item)) {
            let (at, bytes) = self.extent(item);
            self.touch(at, bytes, Touch::Write, Cause::Metadata);
        }
    }

    /// Notes that the allocator got a reference to an item, if writes are detected.
    #[inline(always)]
    pub(super) fn remember(&self, item: impl FnOnce() -> MetaItem) {
        if self.tracks_meta() {
            self.remember_item(item());
        }
    }

    #[inline(never)]
    fn remember_item(&self, item: MetaItem) {
        // Checked now, because the next write may undo an earlier one.
        if !self.meta_tracker.is_empty() {
            self.touch_changed();
        }
        if !self.filter.is_written(self.extent(item).0 / PAGE_BYTES) {
            self.meta_tracker.remember(item, || self.digest(item));
        }
    }

    fn digest(&self, item: MetaItem) -> u64 {
        match item {
            MetaItem::Pool => meta_tracker::of_pool(&self.pool),
            MetaItem::Entry(ordinal) => {
                let (page, index) = (ordinal as usize / ENTRIES_PER_PAGE, ordinal as usize % ENTRIES_PER_PAGE);
                self.table[page].get().map_or(0, |entries| meta_tracker::of_entry(&entries[index]))
            }
            MetaItem::MessageQueue(heap) => meta_tracker::of_word(&self.message_queues[heap as usize]),
            MetaItem::FrontEntry(heap, index) => self.front_value(heap, index),
            MetaItem::Header(superslab) => meta_tracker::of_header(&self.superslab_at(superslab).meta),
            MetaItem::Slab(superslab, slice) => {
                meta_tracker::of_slab(&self.superslab_at(superslab).slices[slice as usize].meta)
            }
            MetaItem::Remote(superslab, slice) => {
                meta_tracker::of_word(&self.superslab_at(superslab).remote[slice as usize])
            }
            MetaItem::MessageNext(superslab, slice) => {
                meta_tracker::of_word(&self.superslab_at(superslab).message_next[slice as usize])
            }
        }
    }

    /// The position of an item in native memory, from the start of the reservation, and its size. No item crosses a
    /// page.
    #[inline(always)]
    pub(super) fn extent(&self, item: MetaItem) -> (u64, u64) {
        let layout = &self.layout;
        let word = |superslab: u32, words: u32, slice: u32| {
            (layout.meta_of(superslab) + u64::from(words) + WORD_BYTES * u64::from(slice), WORD_BYTES)
        };
        match item {
            MetaItem::Pool => (0, size_of::<PoolMeta>() as u64),
            MetaItem::Entry(ordinal) => (layout.entry_of(ordinal), ENTRY_BYTES),
            MetaItem::FrontEntry(heap, index) => (layout.front_entry_of(heap, index), FRONT_ENTRY_BYTES),
            MetaItem::MessageQueue(heap) => (layout.heap_of(heap) + HEAP_BYTES - WORD_BYTES, WORD_BYTES),
            MetaItem::Header(superslab) => (layout.meta_of(superslab), u64::from(SPANS_AT)),
            MetaItem::Slab(superslab, slice) => {
                let bytes = size_of::<SpanMeta>() as u64;
                (layout.meta_of(superslab) + u64::from(SPANS_AT) + u64::from(slice) * bytes, bytes)
            }
            MetaItem::Remote(superslab, slice) => word(superslab, layout.remote_words, slice),
            MetaItem::MessageNext(superslab, slice) => word(superslab, layout.message_links, slice),
        }
    }
}

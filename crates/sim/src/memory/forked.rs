//! The memory after a fork: every write counts again, also that of metadata.

use hksim_policy::PAGE_BYTES;
use std::ops::Range;

use hksim_policy::layout::{HEAP_BYTES, SPANS_AT};
use hksim_policy::meta::{ENTRY_BYTES, PoolMeta, SpanMeta};

use super::meta_watch::{self, Piece};
use super::{ENTRIES_PER_PAGE, SimMemory};
use crate::hooks::{Hooks, Touch, Why};

/// Bytes of a remote word.
const WORD_BYTES: u64 = 8;

impl<H: Hooks> SimMemory<H> {
    /// A fork has write-protected these pages, named from the start of the reservation: the next write to each counts. From
    /// now on writes of metadata are told from reads, if the hooks see every access.
    pub fn forked(&self, pages: Range<u64>) {
        self.watch.switch_on();
        pages.for_each(|page| self.filter.pass_again(page));
    }

    /// Finds the metadata that were written since the last time.
    pub fn settle(&self) {
        if !H::EVERY_ACCESS || !self.watch.is_on() {
            return;
        }
        self.touch_changed();
        self.watch.clear();
    }

    fn touch_changed(&self) {
        for piece in self.watch.take_changed(|piece| self.digest(piece)) {
            let (at, bytes) = self.extent(piece);
            self.touch(at, bytes, Touch::Write, Why::Metadata);
        }
    }

    #[inline]
    pub(super) fn remember(&self, piece: Piece) {
        if !self.watch.is_on() {
            return;
        }
        // Before the next change: it may undo this one.
        self.touch_changed();
        if !self.filter.is_written(self.extent(piece).0 / PAGE_BYTES) {
            self.watch.remember(piece, || self.digest(piece));
        }
    }

    fn digest(&self, piece: Piece) -> u64 {
        match piece {
            Piece::Pool => meta_watch::of_pool(&self.pool),
            Piece::Entry(ordinal) => {
                let (page, index) = (ordinal as usize / ENTRIES_PER_PAGE, ordinal as usize % ENTRIES_PER_PAGE);
                self.table[page].get().map_or(0, |entries| meta_watch::of_entry(&entries[index]))
            }
            Piece::Mail(heap) => meta_watch::of_word(&self.mail[heap as usize]),
            Piece::Header(superslab) => meta_watch::of_header(&self.superslab_at(superslab).meta),
            Piece::Slab(superslab, slice) => meta_watch::of_slab(&self.superslab_at(superslab).slabs[slice as usize]),
            Piece::Remote(superslab, slice) => {
                meta_watch::of_word(&self.superslab_at(superslab).remote[slice as usize])
            }
            Piece::MailNext(superslab, slice) => {
                meta_watch::of_word(&self.superslab_at(superslab).mail[slice as usize])
            }
        }
    }

    /// Where a piece lies natively, from the start of the reservation, and its bytes: none crosses a page.
    fn extent(&self, piece: Piece) -> (u64, u64) {
        let layout = &self.layout;
        let word = |superslab: u32, words: u32, slice: u32| {
            (layout.meta_of(superslab) + u64::from(words) + WORD_BYTES * u64::from(slice), WORD_BYTES)
        };
        match piece {
            Piece::Pool => (0, size_of::<PoolMeta>() as u64),
            Piece::Entry(ordinal) => (layout.entry_of(ordinal), ENTRY_BYTES),
            Piece::Mail(heap) => (layout.heap_of(heap) + HEAP_BYTES - WORD_BYTES, WORD_BYTES),
            Piece::Header(superslab) => (layout.meta_of(superslab), u64::from(SPANS_AT)),
            Piece::Slab(superslab, slice) => {
                let bytes = size_of::<SpanMeta>() as u64;
                (layout.meta_of(superslab) + u64::from(SPANS_AT) + u64::from(slice) * bytes, bytes)
            }
            Piece::Remote(superslab, slice) => word(superslab, layout.remote_words, slice),
            Piece::MailNext(superslab, slice) => word(superslab, layout.message_links, slice),
        }
    }
}

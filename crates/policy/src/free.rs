//! Freeing: to the owner's slab, to another owner's word, or to the pool.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Block, Link, Memory};
use crate::meta::{SlabMeta, SpanState};
use crate::misuse::Misuse;
use crate::process::Checks;
use crate::slab::Pushed;
use crate::vocabulary::MetaPlace;
use crate::word::Word;

/// How far the fast path of a free came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quickly {
    /// The block is free.
    Done,
    /// It is, and its slab has no other in use: [`settle_after`](Allocator::settle_after) is to follow.
    Emptied,
    /// It may have been free before: [`free_suspect`](Allocator::free_suspect) is to follow.
    Suspect,
    /// Nothing has happened: [`free_slowly`](Allocator::free_slowly) is to follow.
    Not,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether a block is huge. In-band metadata keeps offset 0 free of small blocks; with a sidecar the table tells,
    /// by a field that does not change while the block is live.
    #[inline(always)]
    pub(crate) fn is_huge(&self, block: Block<M::SuperSlab>) -> bool {
        block.offset == 0
            && (self.geometry.meta_place() == MetaPlace::InBand
                || self.mem.entry(self.mem.ordinal(block.superslab)).bytes.get() > 0)
    }

    /// The span that holds a block which is not huge, with its metadata.
    #[inline(always)]
    pub(crate) fn span_at(&self, block: Block<M::SuperSlab>) -> (Span<M>, &SlabMeta) {
        let superslab = block.superslab;
        let unit = block.offset >> self.geometry.unit_shift();
        let slab = self.unit_meta(superslab, unit);
        match slab.span_back.get() {
            0 => (Span { superslab, unit }, slab),
            back => {
                let span = Span { superslab, unit: unit - u32::from(back) };
                (span, self.slab_meta(span))
            }
        }
    }

    /// Frees a block that [`allocate`](Self::allocate) returned and that was not freed since.
    #[inline(always)]
    pub fn free(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        match self.free_quickly(heap, block) {
            Quickly::Done => {}
            Quickly::Emptied => self.settle_after(heap, block),
            Quickly::Suspect => self.free_suspect(heap, block),
            Quickly::Not => self.free_slowly(heap, block),
        }
    }

    /// Frees a block if its [home](crate::home) says that the heap may do so at once.
    #[inline(always)]
    pub fn free_quickly(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) -> Quickly {
        if self.is_huge(block) {
            return Quickly::Not;
        }
        let slab = self.unit_meta(block.superslab, block.offset >> self.geometry.unit_shift());
        if slab.home.word() != heap.quick {
            return Quickly::Not;
        }
        match self.push_local(block.superslab, slab, block.offset - self.geometry.header_bytes()) {
            Pushed::Done => Quickly::Done,
            Pushed::Last => Quickly::Emptied,
            Pushed::Suspect => Quickly::Suspect,
        }
    }

    /// Does what [`Quickly::Emptied`] leaves to be done.
    #[cold]
    #[inline(never)]
    pub fn settle_after(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        let (span, slab) = self.span_at(block);
        if slab.span_state() != SpanState::Active {
            self.settle(heap, span);
        }
    }

    /// Does what [`Quickly::Suspect`] leaves to be done: looks whether the block was free before.
    #[cold]
    #[inline(never)]
    pub fn free_suspect(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        let (span, slab) = self.span_at(block);
        let start = block.offset - self.geometry.header_bytes();
        if self.is_free(heap, span, start) {
            return self.mem.misuse(block, self.misuse_of_free(heap, span, start));
        }
        let pushed = self.list_local(slab, start);
        self.settle_pushed(heap, span, pushed);
    }

    /// Frees any block.
    #[cold]
    #[inline(never)]
    pub fn free_slowly(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        if let Some(misuse) = self.misuse_of(block) {
            return self.mem.misuse(block, misuse);
        }
        if self.is_huge(block) {
            return self.free_huge(block);
        }
        let (span, slab) = self.span_at(block);
        let owner = self.mem.meta(block.superslab).owner.load();
        if owner == 0 && self.adopt_for_free(heap, block.superslab) {
            // Blocks that came back meanwhile were collected, and their spans may be gone: all is looked at anew.
            return self.free_slowly(heap, block);
        }
        if owner != heap.owner_word() {
            return self.free_foreign(span, block);
        }
        if slab.is_large() {
            if self.remote_list(span) != Link::NONE {
                return self.mem.misuse(block, Misuse::DoubleFree);
            }
            return self.retire(heap, span);
        }
        let start = block.offset - self.geometry.header_bytes();
        let looks_before = self.process.checks == Checks::Full && self.has_keys();
        if looks_before && self.mem.read_key(block.superslab, self.link_at(start)) == slab.key.get() {
            return self.free_suspect_unchanged(heap, span, block);
        }
        match self.push_local(block.superslab, slab, start) {
            Pushed::Suspect => self.free_suspect(heap, block),
            pushed => self.settle_pushed(heap, span, pushed),
        }
    }

    /// A block that has the key of a free one, and nothing of which was changed.
    fn free_suspect_unchanged(&self, heap: &mut ThreadHeap<M>, span: Span<M>, block: Block<M::SuperSlab>) {
        let slab = self.slab_meta(span);
        let start = block.offset - self.geometry.header_bytes();
        if self.is_free(heap, span, start) {
            return self.mem.misuse(block, self.misuse_of_free(heap, span, start));
        }
        self.mem.write_link(span.superslab, self.link_at(start), slab.local_free.get());
        let pushed = self.list_local(slab, start);
        self.settle_pushed(heap, span, pushed);
    }

    fn settle_pushed(&self, heap: &mut ThreadHeap<M>, span: Span<M>, pushed: Pushed) {
        match self.slab_meta(span).span_state() {
            SpanState::Active => {}
            SpanState::Full => self.settle(heap, span),
            SpanState::Partial | SpanState::None if pushed == Pushed::Last => self.settle(heap, span),
            SpanState::Partial | SpanState::None => {}
        }
    }

    fn free_foreign(&self, span: Span<M>, block: Block<M::SuperSlab>) {
        let slab = self.slab_meta(span);
        // A large block is its own slab of capacity 1: its owner takes it back through the mail. The payload may
        // begin anywhere in the span, so its link is written at the payload.
        let start = block.offset - if slab.is_large() { 0 } else { self.geometry.header_bytes() };
        let at = if slab.is_large() { start } else { self.link_at(start) };
        if self.has_keys() {
            let (link, key) = self.mem.exchange(span.superslab, at, Link::NONE, slab.key.get());
            if self.looks_free(slab, link, key) {
                self.mem.exchange(span.superslab, at, link, key);
                return self.mem.misuse(block, Misuse::DoubleFree);
            }
        }
        self.free_remote(span, start, at);
    }
}

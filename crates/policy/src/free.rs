//! Freeing: to the owner's slab, to another owner's word, or to the pool.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Block, Memory};
use crate::meta::{SlabMeta, SpanState};
use crate::options::MetaPlace;
use crate::word::Word;

/// How far the fast path of a free came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quickly {
    /// The block is free.
    Done,
    /// It is, and its slab has no other in use: [`settle_after`](Allocator::settle_after) is to follow.
    Emptied,
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
            true => Quickly::Emptied,
            false => Quickly::Done,
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

    /// Frees any block.
    #[cold]
    #[inline(never)]
    pub fn free_slowly(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        if self.is_huge(block) {
            return self.free_huge(block);
        }
        let (span, slab) = self.span_at(block);
        if self.mem.meta(block.superslab).owner.load() != heap.owner_word() {
            return self.free_foreign(span, block.offset);
        }
        if slab.is_large() {
            return self.retire(heap, span);
        }
        let is_empty = self.push_local(block.superslab, slab, block.offset - self.geometry.header_bytes());
        match slab.span_state() {
            SpanState::Active => {}
            SpanState::Full => self.settle(heap, span),
            SpanState::Partial | SpanState::None if is_empty => self.settle(heap, span),
            SpanState::Partial | SpanState::None => {}
        }
    }

    fn free_foreign(&self, span: Span<M>, offset: u32) {
        if self.slab_meta(span).is_large() {
            // A large block is its own slab of capacity 1: its owner takes it back through the mail. The payload may
            // begin anywhere in the span, so its link is written at the payload.
            return self.free_remote(span, offset, offset);
        }
        let start = offset - self.geometry.header_bytes();
        self.free_remote(span, start, self.link_at(start));
    }
}

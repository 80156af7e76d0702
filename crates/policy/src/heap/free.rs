//! Freeing: a block returns to the heap's own slab, to another heap's remote word, or to the pool.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::invalid_free::InvalidFree;
use crate::heap::slab::PushOutcome;
use crate::memory::{Block, Link, Memory};
use crate::metadata::meta::{SpanMeta, SpanState};
use crate::metadata::shared_word::Word;
use crate::path::Path;
use crate::policy::process::Checks;
use crate::policy::vocabulary::MetaPlace;

/// The result of the fast path of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastFree {
    /// The block is free.
    Done,
    /// The block is free and its slab has no block in use. The caller must call
    /// [`finish_emptied`](Allocator::finish_emptied).
    Emptied,
    /// The block may already have been free. The caller must call [`free_suspect`](Allocator::free_suspect).
    Suspect,
    /// Nothing was changed. The caller must call [`free_slow`](Allocator::free_slow).
    NotFast,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether a block is huge. With in-band metadata, only huge blocks start at offset 0. With sidecar metadata the
    /// arena table decides, by a field that is 0 for a heap's SuperSlab and positive for a huge block.
    #[inline(always)]
    pub(crate) fn is_huge(&self, block: Block<M::SuperSlab>) -> bool {
        block.offset == 0
            && (self.geometry.meta_place() == MetaPlace::InBand
                || self.mem.entry(self.mem.ordinal(block.superslab)).bytes.get() > 0)
    }

    /// The span of a block that is not huge, with the span's metadata.
    #[inline(always)]
    pub(crate) fn span_at(&self, block: Block<M::SuperSlab>) -> (Span<M>, &SpanMeta) {
        let superslab = block.superslab;
        let slice = block.offset >> self.geometry.slice_shift();
        let slab = self.slice_meta(superslab, slice);
        match slab.span_back.get() {
            0 => (Span { superslab, slice }, slab),
            back => {
                let span = Span { superslab, slice: slice - u32::from(back) };
                (span, self.span_meta(span))
            }
        }
    }

    /// Frees a live block.
    #[inline(always)]
    pub fn free(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        let outcome = self.free_fast(heap, block);
        self.finish_free(heap, block, outcome);
    }

    /// Completes a free after its fast path.
    #[inline(always)]
    pub fn finish_free(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>, outcome: FastFree) {
        match outcome {
            FastFree::Done => {}
            FastFree::Emptied => self.finish_emptied(heap, block),
            FastFree::Suspect => self.free_suspect(heap, block),
            FastFree::NotFast => self.free_slow(heap, block),
        }
    }

    /// Frees a block if its [owner tag](crate::heap::owner_tag) allows the fast path.
    #[inline(always)]
    pub fn free_fast(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) -> FastFree {
        self.mem.path(Path::Free, 1);
        if self.is_huge(block) {
            return FastFree::NotFast;
        }
        let span = Span { superslab: block.superslab, slice: block.offset >> self.geometry.slice_shift() };
        let slab = self.span_meta(span);
        if slab.owner_tag.word() != heap.fast_free_tag {
            let is_cached = self.geometry.front_cache() > 0;
            return if is_cached { self.free_to_cache_fast(heap, span, slab, block) } else { FastFree::NotFast };
        }
        match self.push_local(span, slab, block.offset - self.geometry.header_bytes()) {
            PushOutcome::Done => FastFree::Done,
            PushOutcome::Emptied => FastFree::Emptied,
            PushOutcome::Suspect => FastFree::Suspect,
        }
    }

    /// Completes a free that returned [`FastFree::Emptied`].
    #[cold]
    #[inline(never)]
    pub fn finish_emptied(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        self.mem.path(Path::Emptied, 1);
        let (span, slab) = self.span_at(block);
        if slab.span_state() != SpanState::Active {
            self.update_slab_list(heap, span);
        }
    }

    /// Completes a free that returned [`FastFree::Suspect`]: searches the free lists for the block.
    #[cold]
    #[inline(never)]
    pub fn free_suspect(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        let (span, slab) = self.span_at(block);
        let start = block.offset - self.geometry.header_bytes();
        if self.is_free(heap, span, start) {
            return self.mem.invalid_free(block, self.kind_of_free(heap, span, start));
        }
        let outcome = self.list_local(slab, start);
        self.update_after_push(heap, span, outcome);
    }

    /// Frees any block, on the slow path.
    #[cold]
    #[inline(never)]
    pub fn free_slow(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>) {
        self.mem.path(Path::FreeSlow, 1);
        if let Some(invalid_free) = self.check_pointer(block) {
            return self.mem.invalid_free(block, invalid_free);
        }
        if self.is_huge(block) {
            return self.free_huge(block);
        }
        let (span, slab) = self.span_at(block);
        if self.geometry.front_cache() > 0 && !slab.is_large() {
            return self.free_to_cache(heap, span, block);
        }
        let owner = self.mem.meta(block.superslab).owner.load();
        if owner == 0 && self.adopt_for_free(heap, block.superslab) {
            // Adoption collects remote frees, which may have freed spans. Check everything again.
            return self.free_slow(heap, block);
        }
        if owner != heap.owner_word() {
            return self.free_to_other_heap(span, block);
        }
        if slab.is_large() {
            if self.remote_list(span) != Link::NONE {
                return self.mem.invalid_free(block, InvalidFree::DoubleFree);
            }
            self.mem.path(Path::FreeLarge, 1);
            return self.retire(heap, span);
        }
        self.mem.path(Path::FreeSlowOwn, 1);
        let start = block.offset - self.geometry.header_bytes();
        let looks_before = self.process.checks == Checks::Full && self.has_keys();
        if looks_before && self.mem.read_key(block.superslab, self.link_at(start)) == slab.key.get() {
            return self.free_suspect_unchanged(heap, span, block);
        }
        match self.push_local(span, slab, start) {
            PushOutcome::Suspect => self.free_suspect(heap, block),
            outcome => self.update_after_push(heap, span, outcome),
        }
    }

    /// As [`free_suspect`](Self::free_suspect), for a block whose link was not written yet.
    fn free_suspect_unchanged(&self, heap: &mut ThreadHeap<M>, span: Span<M>, block: Block<M::SuperSlab>) {
        let slab = self.span_meta(span);
        let start = block.offset - self.geometry.header_bytes();
        if self.is_free(heap, span, start) {
            return self.mem.invalid_free(block, self.kind_of_free(heap, span, start));
        }
        self.mem.write_link(span.superslab, self.link_at(start), slab.local_free.get());
        let outcome = self.list_local(slab, start);
        self.update_after_push(heap, span, outcome);
    }

    pub(crate) fn update_after_push(&self, heap: &mut ThreadHeap<M>, span: Span<M>, outcome: PushOutcome) {
        match self.span_meta(span).span_state() {
            SpanState::Active => {}
            SpanState::Full => self.update_slab_list(heap, span),
            SpanState::Partial | SpanState::None if outcome == PushOutcome::Emptied => {
                self.update_slab_list(heap, span)
            }
            SpanState::Partial | SpanState::None => {}
        }
    }

    fn free_to_other_heap(&self, span: Span<M>, block: Block<M::SuperSlab>) {
        self.mem.path(Path::FreeToOther, 1);
        let slab = self.span_meta(span);
        // A large block is a span with one block. The owner gets the block back by a message. The payload may start
        // anywhere in the span, so the link is written at the payload's start.
        let start = block.offset - if slab.is_large() { 0 } else { self.geometry.header_bytes() };
        let at = if slab.is_large() { start } else { self.link_at(start) };
        if self.has_keys() {
            let (link, key) = self.mem.exchange(span.superslab, at, Link::NONE, slab.key.get());
            if self.looks_free(slab, link, key) {
                self.mem.exchange(span.superslab, at, link, key);
                return self.mem.invalid_free(block, InvalidFree::DoubleFree);
            }
        }
        self.free_remote(span, start, at);
    }
}

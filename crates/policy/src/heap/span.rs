//! Spans: runs of slices in the heap's SuperSlabs, allocated first fit by address.

use core::ops::Range;

use crate::allocator::{Allocator, Span};
use crate::arena::layout::{block_slices, reserved_bytes, slab_slices};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::fork::on_slow_path;
use crate::memory::{ArenaRange, Link, Memory};
use crate::metadata::bits::SliceBits;
use crate::metadata::meta::{CLASS_LARGE, SlabId, SpanState};
use crate::path::Path;

/// A request for a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanRequest {
    /// A fixed number of slices.
    Slices(u32),
    /// This many bytes, starting at an aligned address.
    Bytes { bytes: u64, align: u64 },
}

/// A free range of slices that fits a request.
pub(crate) struct SpanFit {
    first: u32,
    slices: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// First slice that blocks can use.
    pub(crate) fn first_slice(&self) -> u32 {
        reserved_bytes(&self.geometry) >> self.geometry.slice_shift()
    }

    /// Offset of the first byte of a span that blocks can use.
    pub(crate) fn area_of(&self, slice: u32) -> u32 {
        (slice << self.geometry.slice_shift()).max(reserved_bytes(&self.geometry))
    }

    fn slices_from(&self, first: u32, request: SpanRequest) -> u32 {
        match request {
            SpanRequest::Slices(slices) => slices,
            SpanRequest::Bytes { bytes, align } => {
                let payload = u64::from(self.area_of(first)).next_multiple_of(align);
                let start = u64::from(first) << self.geometry.slice_shift();
                (payload + bytes - start).div_ceil(1 << self.geometry.slice_shift()) as u32
            }
        }
    }

    /// The first slice at or after `from` (below `end`) whose bit equals `value`.
    #[inline(always)]
    pub(crate) fn find_slice(&self, bits: &SliceBits, from: u32, end: u32, value: bool) -> Option<u32> {
        let found = bits.find(from, end, value);
        let words = (found.unwrap_or(end) / u64::BITS).saturating_sub(from / u64::BITS);
        self.mem.path(Path::WordPassed, u64::from(words));
        found
    }

    /// First fit in one SuperSlab.
    pub(crate) fn find_slices(&self, superslab: M::SuperSlab, request: SpanRequest) -> Option<SpanFit> {
        let meta = self.mem.meta(superslab);
        let end = self.geometry.slices();
        let mut from = self.first_slice();
        while let Some(first) = self.find_slice(&meta.free, from, end, true) {
            let after = self.find_slice(&meta.free, first, end, false).unwrap_or(end);
            self.mem.path(Path::RunExamined, 1);
            for candidate in first..after {
                self.mem.path(Path::SliceTried, 1);
                let slices = self.slices_from(candidate, request);
                if candidate + slices <= after {
                    return Some(SpanFit { first: candidate, slices });
                }
                if matches!(request, SpanRequest::Slices(_)) {
                    break;
                }
            }
            from = after;
        }
        None
    }

    /// Takes a span from one of the heap's SuperSlabs, from an abandoned SuperSlab, or from a new SuperSlab.
    pub(crate) fn take_span(
        &self,
        heap: &mut ThreadHeap<M>,
        request: SpanRequest,
        state: SpanState,
    ) -> Option<Span<M>> {
        self.purge_due(heap);
        loop {
            if let Some(span) = self.take_owned_span(heap, request, state) {
                return Some(span);
            }
            // Adopt abandoned SuperSlabs first: otherwise short-lived threads would fill the arena.
            if !self.adopt(heap) && self.new_superslab(heap, request).is_none() {
                return None;
            }
        }
    }

    fn take_owned_span(&self, heap: &mut ThreadHeap<M>, request: SpanRequest, state: SpanState) -> Option<Span<M>> {
        let (superslab, found) = self.find_available(heap, request)?;
        Some(self.occupy(heap, superslab, found, state))
    }

    fn occupy(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab, found: SpanFit, state: SpanState) -> Span<M> {
        let SpanFit { first, slices } = found;
        let meta = self.mem.meta(superslab);
        let zeroed = meta.zero.all(first, slices);
        let fresh = meta.clean.all(first, slices);
        self.mem.path(Path::SpanTaken, 1);
        self.mem.path(Path::SliceTaken, u64::from(slices));
        self.mem.path(Path::SliceZero, if zeroed { u64::from(slices) } else { 0 });
        self.mem.path(Path::SliceClean, if fresh { u64::from(slices) } else { 0 });
        meta.free.put(first, slices, false);
        meta.clean.put(first, slices, false);
        meta.zero.put(first, slices, false);
        meta.used_slices.set(meta.used_slices.get() + slices);
        let is_last = self.find_slice(&meta.free, self.first_slice(), self.geometry.slices(), true).is_none();
        if is_last {
            self.remove_available(heap, superslab);
        }
        self.mark_slices_held(heap.id, superslab, first, first..first + slices);
        let span = Span { superslab, slice: first };
        let slab = self.span_meta(span);
        slab.span_slices.set(slices as u16);
        slab.area.set(self.area_of(first));
        slab.local_free.set(Link::NONE);
        slab.carved.set(0);
        slab.used.set(0);
        slab.zeroed.set(zeroed);
        slab.fresh.set(false);
        slab.key.set(self.new_key());
        slab.next.set(SlabId::NONE);
        slab.prev.set(SlabId::NONE);
        slab.set_state(state);
        self.reset_remote(span, state == SpanState::Full);
        if fresh {
            self.mem.path(Path::SpanClean, 1);
            self.prefault_span(span);
        }
        if is_last {
            self.mem.path(Path::SuperSlabFilled, 1);
            self.collapse_filled(superslab);
        }
        span
    }

    /// Records that these slices belong to the span that starts at slice `first`.
    fn mark_slices_held(&self, heap: u32, superslab: M::SuperSlab, first: u32, slices: Range<u32>) {
        for slice in slices {
            let meta = self.slice_meta(superslab, slice);
            meta.span_back.set((slice - first) as u16);
            meta.owner_tag.begin(heap, slice == first);
        }
    }

    /// A new slab of a class.
    pub(crate) fn new_slab(&self, heap: &mut ThreadHeap<M>, class: usize) -> Option<Span<M>> {
        let stride = self.geometry.classes().stride(class);
        let span = self.take_slab_span(heap, stride)?;
        let slab = self.span_meta(span);
        slab.class.set(class as u8);
        slab.stride.set(stride);
        slab.capacity.set((self.span_end(span) - slab.area.get()) / stride);
        let slices = span.slice..span.slice + u32::from(slab.span_slices.get());
        self.mem.begin_slab(span.superslab, slices, stride);
        Some(span)
    }

    /// Takes a span for a slab. If the arena is nearly full, a shorter span that holds at least one block will do.
    fn take_slab_span(&self, heap: &mut ThreadHeap<M>, stride: u32) -> Option<Span<M>> {
        let (least, best) = (block_slices(&self.geometry, stride), slab_slices(&self.geometry, stride));
        (least..=best).rev().find_map(|slices| self.take_span(heap, SpanRequest::Slices(slices), SpanState::Partial))
    }

    /// Grows a large span over the slices that follow it, if they are free. `bytes` is counted from the start of the
    /// payload.
    pub(crate) fn grow_span(&self, heap: &ThreadHeap<M>, span: Span<M>, bytes: u64) -> bool {
        let slab = self.span_meta(span);
        let meta = self.mem.meta(span.superslab);
        let end_bytes = u64::from(slab.area.get()).saturating_add(bytes);
        let end = end_bytes.div_ceil(1 << self.geometry.slice_shift());
        let old_end = span.slice + u32::from(slab.span_slices.get());
        if end > u64::from(self.geometry.slices()) || !meta.free.all(old_end, end as u32 - old_end) {
            return false;
        }
        let more = end as u32 - old_end;
        self.mem.path(Path::SpanGrown, 1);
        self.mem.path(Path::SliceGrown, u64::from(more));
        meta.free.put(old_end, more, false);
        meta.clean.put(old_end, more, false);
        meta.zero.put(old_end, more, false);
        meta.used_slices.set(meta.used_slices.get() + more);
        self.mark_slices_held(heap.id, span.superslab, span.slice, old_end..old_end + more);
        slab.span_slices.set((end as u32 - span.slice) as u16);
        slab.stride.set(self.span_end(span) - slab.area.get());
        true
    }

    /// Offset of the end of a span.
    pub(crate) fn span_end(&self, span: Span<M>) -> u32 {
        (span.slice + u32::from(self.span_meta(span).span_slices.get())) << self.geometry.slice_shift()
    }

    /// The bytes of a span that blocks can use, as a range of the arena.
    pub(crate) fn span_range(&self, span: Span<M>) -> ArenaRange {
        let area = self.span_meta(span).area.get();
        self.arena_range(span.superslab, area, self.span_end(span) - area)
    }

    pub(crate) fn arena_range(&self, superslab: M::SuperSlab, at: u32, bytes: u32) -> ArenaRange {
        let base = u64::from(self.mem.ordinal(superslab)) << self.geometry.superslab_shift();
        ArenaRange { start: base + u64::from(at), bytes: u64::from(bytes) }
    }

    /// Frees an empty span. If it was the last span of its SuperSlab, returns the SuperSlab to the pool.
    #[cold]
    pub(crate) fn retire(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        on_slow_path(heap, |heap| self.retire_inner(heap, span));
    }

    fn retire_inner(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        self.mem.path(Path::SpanReturned, 1);
        self.free_span_slices(span);
        let superslab = span.superslab;
        if self.mem.meta(superslab).used_slices.get() == 0 {
            self.disown(heap, superslab);
            self.cache_superslab(superslab);
        } else {
            self.add_available(heap, superslab);
            self.schedule_purge(heap, superslab);
        }
        self.purge_due(heap);
    }

    /// Marks free slices in a hole of the arena as lost: they become a large span whose block is never freed.
    pub(crate) fn mark_slices_lost(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab, first: u32, slices: u32) {
        let meta = self.mem.meta(superslab);
        meta.free.put(first, slices, false);
        meta.clean.put(first, slices, false);
        meta.zero.put(first, slices, false);
        meta.used_slices.set(meta.used_slices.get() + slices);
        self.mark_slices_held(heap.id, superslab, first, first..first + slices);
        let span = Span { superslab, slice: first };
        let slab = self.span_meta(span);
        slab.span_slices.set(slices as u16);
        slab.local_free.set(Link::NONE);
        slab.set_state(SpanState::Full);
        slab.class.set(CLASS_LARGE);
        slab.area.set(self.area_of(first));
        slab.stride.set(self.span_end(span) - self.area_of(first));
        slab.capacity.set(0);
        slab.carved.set(1);
        slab.used.set(1);
        self.reset_remote(span, true);
    }

    /// Marks a span's slices as free.
    pub(crate) fn free_span_slices(&self, span: Span<M>) {
        let slab = self.span_meta(span);
        let meta = self.mem.meta(span.superslab);
        let slices = u32::from(slab.span_slices.get());
        slab.set_state(SpanState::None);
        self.mem.path(Path::SliceReturned, u64::from(slices));
        for slice in span.slice..span.slice + slices {
            self.slice_meta(span.superslab, slice).owner_tag.clear();
        }
        meta.free.put(span.slice, slices, true);
        meta.used_slices.set(meta.used_slices.get() - slices);
        self.mem.end_span(span.superslab, span.slice..span.slice + slices);
    }
}

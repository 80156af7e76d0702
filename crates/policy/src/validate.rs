//! Checks the invariants of a heap. The checks only read metadata and links, so they can run after any event.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Link, Memory};
use crate::metadata::meta::{SpanState, Use};
use crate::metadata::shared_word::Word;

/// A violated invariant and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub what: &'static str,
    /// Ordinal of the SuperSlab.
    pub ordinal: u32,
    /// First slice of the span, or 0.
    pub slice: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Checks every SuperSlab and span of a heap.
    ///
    /// # Errors
    /// The first violated invariant.
    pub fn validate(&self, heap: &ThreadHeap<M>) -> Result<(), Violation> {
        let mut next = heap.own_head;
        while let Some(ordinal) = next.checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            let meta = self.mem.meta(superslab);
            let holds = |what, holds| if holds { Ok(()) } else { Err(Violation { what, ordinal, slice: 0 }) };
            holds("an owned superslab names its owner", meta.owner.load() == heap.owner_word())?;
            holds("an owned superslab is in use", self.mem.entry(ordinal).usage() == Use::Slabs)?;
            holds("an owned superslab holds a span", meta.used_slices.get() > 0)?;
            let room = meta.free.find(self.first_slice(), self.geometry.slices(), true).is_some();
            holds("a superslab is in the available list iff it has free slices", meta.in_available.get() == room)?;
            let failed_search = heap.failed_search_at(ordinal + 1).filter(|_| room);
            let fits = failed_search.is_some_and(|request| self.find_slices(superslab, request).is_some());
            holds("a request of a failed search does not fit", !fits)?;
            let is_last = room && meta.available_next.get() == 0;
            holds(
                "the tail of the available list is correct",
                is_last == (room && heap.available_tail == ordinal + 1),
            )?;
            self.validate_spans(heap, superslab)?;
            next = meta.own_next.get();
        }
        if !self.is_front_cache_valid(heap) {
            return Err(Violation { what: "the front cache holds blocks of its classes", ordinal: 0, slice: 0 });
        }
        for ordinal in heap.available_hints.all().map(|link| link - 1) {
            let meta = self.mem.meta(self.mem.superslab(ordinal));
            if meta.owner.load() != heap.owner_word() || !meta.in_available.get() {
                return Err(Violation { what: "a hint names a SuperSlab of the list", ordinal, slice: 0 });
            }
        }
        Ok(())
    }

    fn validate_spans(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab) -> Result<(), Violation> {
        let meta = self.mem.meta(superslab);
        let ordinal = self.mem.ordinal(superslab);
        let (mut slice, mut used_slices) = (self.first_slice(), 0);
        while slice < self.geometry.slices() {
            if meta.free.get(slice) {
                slice += 1;
                continue;
            }
            let span = Span { superslab, slice };
            let slices = u32::from(self.span_meta(span).span_slices.get());
            let violation = |what| Violation { what, ordinal, slice };
            if slices == 0 || slice + slices > self.geometry.slices() {
                return Err(violation("a span is inside its superslab"));
            }
            for part in slice..slice + slices {
                let back = u32::from(self.slice_meta(superslab, part).span_back.get());
                if meta.free.get(part) || part - back != slice {
                    return Err(violation("every slice of a span points to its first"));
                }
            }
            self.validate_span(heap, span).map_err(violation)?;
            used_slices += slices;
            slice += slices;
        }
        if used_slices != meta.used_slices.get() {
            return Err(Violation { what: "used_slices is the sum of the spans' slices", ordinal, slice: 0 });
        }
        Ok(())
    }

    fn validate_span(&self, heap: &ThreadHeap<M>, span: Span<M>) -> Result<(), &'static str> {
        let slab = self.span_meta(span);
        let holds = |what, holds| if holds { Ok(()) } else { Err(what) };
        let state = slab.span_state();
        holds("carved blocks fit", slab.carved.get() <= slab.capacity.get() || slab.is_lost())?;
        if slab.is_large() {
            return holds("a large span has one block", slab.used.get() == 1 && state == SpanState::Full);
        }
        let local = self.validate_list(span, slab.local_free.get())?;
        holds(
            "used counts the carved blocks that are not in the local list",
            slab.used.get() + local == slab.carved.get(),
        )?;
        let bin = &heap.bins[usize::from(slab.class.get())];
        let is_active =
            bin.has_active && heap.sources[usize::from(slab.class.get())] == span.superslab && bin.slice == span.slice;
        holds("the active slab is that of its bin", is_active == (state == SpanState::Active))?;
        if is_active {
            let listed = self.validate_list(span, heap.ready[usize::from(slab.class.get())])?;
            return holds("a bin holds carved blocks", listed + local <= slab.carved.get());
        }
        let has_room = local > 0 || slab.carved.get() < slab.capacity.get();
        holds("a full slab has no free block", state != SpanState::Full || !has_room)
    }

    /// Length of a free list. Each entry must be the start of a carved block of the slab.
    fn validate_list(&self, span: Span<M>, list: Link) -> Result<u32, &'static str> {
        let slab = self.span_meta(span);
        let (mut next, mut count) = (list, 0);
        while let Some(at) = self.start_at(next) {
            let from_area = at.checked_sub(slab.area.get()).ok_or("a free block is inside its slab")?;
            if !from_area.is_multiple_of(slab.stride.get()) || from_area / slab.stride.get() >= slab.carved.get() {
                return Err("a free block is a carved block");
            }
            count += 1;
            if count > slab.carved.get() {
                return Err("a free list has an end");
            }
            next = self.mem.read_link(span.superslab, self.link_at(at));
        }
        Ok(count)
    }
}

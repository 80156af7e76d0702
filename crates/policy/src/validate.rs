//! Invariants of a heap, checked from outside after any event. Reads metadata and links only; changes nothing.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Link, Memory};
use crate::meta::{SpanState, Use};
use crate::word::Word;

/// A broken invariant: which, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What does not hold.
    pub what: &'static str,
    /// SuperSlab's ordinal.
    pub ordinal: u32,
    /// First unit of the span, or 0.
    pub unit: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Checks every SuperSlab and span a heap owns.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self, heap: &ThreadHeap<M>) -> Result<(), Violation> {
        let mut next = heap.own_head;
        while let Some(ordinal) = next.checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            let meta = self.mem.meta(superslab);
            let holds = |what, holds| if holds { Ok(()) } else { Err(Violation { what, ordinal, unit: 0 }) };
            holds("an owned superslab names its owner", meta.owner.load() == heap.owner_word())?;
            holds("an owned superslab is in use", self.mem.entry(ordinal).usage() == Use::Slabs)?;
            holds("an owned superslab holds a span", meta.used_units.get() > 0)?;
            let room = meta.free.find(self.first_unit(), self.geometry.units(), true).is_some();
            holds("a superslab is in the room list iff it has room", meta.in_room.get() == room)?;
            let unfit = heap.unfit_for(ordinal + 1).filter(|_| room);
            let fits = unfit.is_some_and(|need| self.find_units(superslab, need).is_some());
            holds("a superslab in which nothing fitted has no room for it", !fits)?;
            let is_last = room && meta.room_next.get() == 0;
            holds("the room list's end is noted", is_last == (room && heap.room_tail == ordinal + 1))?;
            self.validate_spans(heap, superslab)?;
            next = meta.own_next.get();
        }
        for ordinal in heap.noted.all().map(|link| link - 1) {
            let meta = self.mem.meta(self.mem.superslab(ordinal));
            if meta.owner.load() != heap.owner_word() || !meta.in_room.get() {
                return Err(Violation { what: "a noted superslab is in the room list", ordinal, unit: 0 });
            }
        }
        Ok(())
    }

    fn validate_spans(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab) -> Result<(), Violation> {
        let meta = self.mem.meta(superslab);
        let ordinal = self.mem.ordinal(superslab);
        let (mut unit, mut used_units) = (self.first_unit(), 0);
        while unit < self.geometry.units() {
            if meta.free.get(unit) {
                unit += 1;
                continue;
            }
            let span = Span { superslab, unit };
            let units = u32::from(self.slab_meta(span).span_units.get());
            let violation = |what| Violation { what, ordinal, unit };
            if units == 0 || unit + units > self.geometry.units() {
                return Err(violation("a span lies in its superslab"));
            }
            for part in unit..unit + units {
                let back = u32::from(self.unit_meta(superslab, part).span_back.get());
                if meta.free.get(part) || part - back != unit {
                    return Err(violation("every unit of a span leads to its first"));
                }
            }
            self.validate_span(heap, span).map_err(violation)?;
            used_units += units;
            unit += units;
        }
        if used_units != meta.used_units.get() {
            return Err(Violation { what: "used units are counted", ordinal, unit: 0 });
        }
        Ok(())
    }

    fn validate_span(&self, heap: &ThreadHeap<M>, span: Span<M>) -> Result<(), &'static str> {
        let slab = self.slab_meta(span);
        let holds = |what, holds| if holds { Ok(()) } else { Err(what) };
        let state = slab.span_state();
        holds("carved blocks fit", slab.carved.get() <= slab.capacity.get() || slab.is_lost())?;
        if slab.is_large() {
            return holds("a large span has one block", slab.used.get() == 1 && state == SpanState::Full);
        }
        let local = self.validate_list(span, slab.local_free.get())?;
        holds("used counts what is not in the local list", slab.used.get() + local == slab.carved.get())?;
        let bin = &heap.bins[usize::from(slab.class.get())];
        let is_active =
            bin.has_active && heap.sources[usize::from(slab.class.get())] == span.superslab && bin.unit == span.unit;
        holds("the active slab is its bin's", is_active == (state == SpanState::Active))?;
        if is_active {
            let listed = self.validate_list(span, heap.ready[usize::from(slab.class.get())])?;
            return holds("a bin holds carved blocks", listed + local <= slab.carved.get());
        }
        let has_room = local > 0 || slab.carved.get() < slab.capacity.get();
        holds("a full slab has no room", state != SpanState::Full || !has_room)
    }

    /// Length of a free list, each of whose blocks must start where the slab has blocks.
    fn validate_list(&self, span: Span<M>, list: Link) -> Result<u32, &'static str> {
        let slab = self.slab_meta(span);
        let (mut next, mut count) = (list, 0);
        while let Some(at) = self.start_at(next) {
            let from_area = at.checked_sub(slab.area.get()).ok_or("a free block lies in its slab")?;
            if !from_area.is_multiple_of(slab.stride.get()) || from_area / slab.stride.get() >= slab.carved.get() {
                return Err("a free block starts where a block was carved");
            }
            count += 1;
            if count > slab.carved.get() {
                return Err("a free list ends");
            }
            next = self.mem.read_link(span.superslab, self.link_at(at));
        }
        Ok(count)
    }
}

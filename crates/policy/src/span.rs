//! Spans: runs of units inside the heap's SuperSlabs, taken first fit from the lowest address.

use core::ops::Range;

use crate::allocator::{Allocator, Span};
use crate::fork::in_steps;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::layout::{block_units, reserved_bytes, slab_units};
use crate::memory::{ArenaRange, Link, Memory};
use crate::meta::{CLASS_LARGE, SlabId, SpanState};

/// What a span must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A fixed number of units.
    Units(u32),
    /// So many bytes from an aligned address on.
    Bytes { bytes: u64, align: u64 },
}

/// A place found for a span.
pub(crate) struct Found {
    first: u32,
    units: u32,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// First unit that blocks can use at all.
    pub(crate) fn first_unit(&self) -> u32 {
        reserved_bytes(&self.geometry) >> self.geometry.unit_shift()
    }

    /// Offset of the first byte of a span that blocks can use.
    pub(crate) fn area_of(&self, unit: u32) -> u32 {
        (unit << self.geometry.unit_shift()).max(reserved_bytes(&self.geometry))
    }

    fn units_from(&self, first: u32, need: Need) -> u32 {
        match need {
            Need::Units(units) => units,
            Need::Bytes { bytes, align } => {
                let payload = u64::from(self.area_of(first)).next_multiple_of(align);
                let start = u64::from(first) << self.geometry.unit_shift();
                (payload + bytes - start).div_ceil(1 << self.geometry.unit_shift()) as u32
            }
        }
    }

    /// First fit in one SuperSlab.
    pub(crate) fn find_units(&self, superslab: M::SuperSlab, need: Need) -> Option<Found> {
        let meta = self.mem.meta(superslab);
        let end = self.geometry.units();
        let mut from = self.first_unit();
        while let Some(first) = meta.free.find(from, end, true) {
            let after = meta.free.find(first, end, false).unwrap_or(end);
            for candidate in first..after {
                let units = self.units_from(candidate, need);
                if candidate + units <= after {
                    return Some(Found { first: candidate, units });
                }
                if matches!(need, Need::Units(_)) {
                    break;
                }
            }
            from = after;
        }
        None
    }

    /// Takes a span from the heap's SuperSlabs, from an abandoned one, or from a new one.
    pub(crate) fn take_span(&self, heap: &mut ThreadHeap<M>, need: Need, state: SpanState) -> Option<Span<M>> {
        self.tick(heap);
        loop {
            if let Some(span) = self.take_owned_span(heap, need, state) {
                return Some(span);
            }
            // What a thread left behind comes first, or short-lived threads would fill the arena.
            if !self.adopt(heap) && self.new_superslab(heap).is_none() {
                return None;
            }
        }
    }

    fn take_owned_span(&self, heap: &mut ThreadHeap<M>, need: Need, state: SpanState) -> Option<Span<M>> {
        let (superslab, found) = self.find_room(heap, need)?;
        Some(self.occupy(heap, superslab, found, state))
    }

    fn occupy(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab, found: Found, state: SpanState) -> Span<M> {
        let Found { first, units } = found;
        let meta = self.mem.meta(superslab);
        let zeroed = meta.zero.all(first, units);
        let fresh = meta.clean.all(first, units);
        meta.free.put(first, units, false);
        meta.clean.put(first, units, false);
        meta.zero.put(first, units, false);
        meta.used_units.set(meta.used_units.get() + units);
        let is_last = meta.free.find(self.first_unit(), self.geometry.units(), true).is_none();
        if is_last {
            self.leave_room_list(heap, superslab);
        }
        self.hold_units(heap.id, superslab, first, first..first + units);
        let span = Span { superslab, unit: first };
        let slab = self.slab_meta(span);
        slab.span_units.set(units as u16);
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
            self.prefault_span(span);
        }
        if is_last {
            self.collapse_filled(superslab);
        }
        span
    }

    /// Notes that a span which begins at unit `first` holds these units.
    fn hold_units(&self, heap: u32, superslab: M::SuperSlab, first: u32, units: Range<u32>) {
        for unit in units {
            let meta = self.unit_meta(superslab, unit);
            meta.span_back.set((unit - first) as u16);
            meta.home.begin(heap, unit == first);
        }
    }

    /// A new slab of a class.
    pub(crate) fn new_slab(&self, heap: &mut ThreadHeap<M>, class: usize) -> Option<Span<M>> {
        let stride = self.geometry.classes().stride(class);
        let span = self.take_slab_span(heap, stride)?;
        let slab = self.slab_meta(span);
        slab.class.set(class as u8);
        slab.stride.set(stride);
        slab.capacity.set((self.span_end(span) - slab.area.get()) / stride);
        Some(span)
    }

    /// Where the arena is full, what is left of it may lie in pieces that are too short for a slab as it should be.
    fn take_slab_span(&self, heap: &mut ThreadHeap<M>, stride: u32) -> Option<Span<M>> {
        let (least, best) = (block_units(&self.geometry, stride), slab_units(&self.geometry, stride));
        (least..=best).rev().find_map(|units| self.take_span(heap, Need::Units(units), SpanState::Partial))
    }

    /// Grows a large span over the units behind it, if they are free. `bytes` is counted from its payload.
    pub(crate) fn grow_span(&self, heap: &ThreadHeap<M>, span: Span<M>, bytes: u64) -> bool {
        let slab = self.slab_meta(span);
        let meta = self.mem.meta(span.superslab);
        let end_bytes = u64::from(slab.area.get()).saturating_add(bytes);
        let end = end_bytes.div_ceil(1 << self.geometry.unit_shift());
        let old_end = span.unit + u32::from(slab.span_units.get());
        if end > u64::from(self.geometry.units()) || !meta.free.all(old_end, end as u32 - old_end) {
            return false;
        }
        let more = end as u32 - old_end;
        meta.free.put(old_end, more, false);
        meta.clean.put(old_end, more, false);
        meta.zero.put(old_end, more, false);
        meta.used_units.set(meta.used_units.get() + more);
        self.hold_units(heap.id, span.superslab, span.unit, old_end..old_end + more);
        slab.span_units.set((end as u32 - span.unit) as u16);
        slab.stride.set(self.span_end(span) - slab.area.get());
        true
    }

    /// Offset of the end of a span.
    pub(crate) fn span_end(&self, span: Span<M>) -> u32 {
        (span.unit + u32::from(self.slab_meta(span).span_units.get())) << self.geometry.unit_shift()
    }

    /// The bytes of a span that blocks can use, as a range of the arena.
    pub(crate) fn span_range(&self, span: Span<M>) -> ArenaRange {
        let area = self.slab_meta(span).area.get();
        self.arena_range(span.superslab, area, self.span_end(span) - area)
    }

    pub(crate) fn arena_range(&self, superslab: M::SuperSlab, at: u32, bytes: u32) -> ArenaRange {
        let base = u64::from(self.mem.ordinal(superslab)) << self.geometry.superslab_shift();
        ArenaRange { start: base + u64::from(at), bytes: u64::from(bytes) }
    }

    /// Gives an empty span back to its SuperSlab, and the SuperSlab to the pool when it was the last.
    #[cold]
    pub(crate) fn retire(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        in_steps(heap, |heap| self.retire_steps(heap, span));
    }

    fn retire_steps(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        self.vacate(span);
        let superslab = span.superslab;
        if self.mem.meta(superslab).used_units.get() == 0 {
            self.disown(heap, superslab);
            self.give_idle(superslab);
        } else {
            self.enter_room_list(heap, superslab);
            self.schedule_purge(heap, superslab);
        }
        self.tick(heap);
    }

    /// Takes free units that lie in a hole of the arena out of use for ever: they become a large block that nobody has.
    pub(crate) fn lose_units(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab, first: u32, units: u32) {
        let meta = self.mem.meta(superslab);
        meta.free.put(first, units, false);
        meta.clean.put(first, units, false);
        meta.zero.put(first, units, false);
        meta.used_units.set(meta.used_units.get() + units);
        self.hold_units(heap.id, superslab, first, first..first + units);
        let span = Span { superslab, unit: first };
        let slab = self.slab_meta(span);
        slab.span_units.set(units as u16);
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

    /// Marks a span's units free.
    pub(crate) fn vacate(&self, span: Span<M>) {
        let slab = self.slab_meta(span);
        let meta = self.mem.meta(span.superslab);
        let units = u32::from(slab.span_units.get());
        slab.set_state(SpanState::None);
        for unit in span.unit..span.unit + units {
            self.unit_meta(span.superslab, unit).home.clear();
        }
        meta.free.put(span.unit, units, true);
        meta.used_units.set(meta.used_units.get() - units);
    }
}

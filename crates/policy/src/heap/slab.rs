//! Slabs: activating them, carving blocks, and handling freed blocks.
//!
//! A bin takes the whole free list of its *active* slab; the slab counts those blocks as used. So an allocation touches
//! only the bin. An active slab is never recognised as empty, so one empty slab per class may stay.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::fork::on_slow_path;
use crate::heap::invalid_free::InvalidFree;
use crate::heap::link::Link;
use crate::limits::{LINK_BYTES, PAGE_BYTES};
use crate::memory::{Block, Memory};
use crate::metadata::meta::{SlabId, SpanMeta, SpanState};
use crate::path::Path;
use crate::policy::process::Checks;
use crate::policy::vocabulary::Carve;

/// The contents of a block when it is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Zeros: the memory was zero when it was mapped, and was never used.
    Zero,
    /// Zeros, except for the link that was written when the block was carved.
    ZeroButLink,
    /// Anything.
    Unknown,
}

/// A block that a slow path found for a bin.
pub(crate) struct Refilled<M: Memory> {
    pub(crate) superslab: M::SuperSlab,
    pub(crate) start: u32,
    pub(crate) contents: Contents,
}

/// The result of pushing a freed block onto a slab's local list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    /// The block is free.
    Done,
    /// The block is free, and no block of the slab is in use.
    Emptied,
    /// The block may already have been free. Only its link was written.
    Suspect,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    #[inline(always)]
    pub(crate) fn span_meta(&self, span: Span<M>) -> &SpanMeta {
        self.slice_meta(span.superslab, span.slice)
    }

    pub(crate) fn span_of(&self, id: SlabId) -> Option<Span<M>> {
        id.get().map(|(ordinal, slice)| Span { superslab: self.mem.superslab(ordinal), slice })
    }

    fn id_of(&self, span: Span<M>) -> SlabId {
        SlabId::new(self.mem.ordinal(span.superslab), span.slice)
    }

    /// Refills an empty bin from, in this order: local frees, remote frees, carving, the next partial slab, an
    /// abandoned SuperSlab, a new span.
    #[cold]
    pub(crate) fn refill(&self, heap: &mut ThreadHeap<M>, class: usize) -> Option<Refilled<M>> {
        on_slow_path(heap, |heap| self.find_block(heap, class))
    }

    fn find_block(&self, heap: &mut ThreadHeap<M>, class: usize) -> Option<Refilled<M>> {
        self.mem.path(Path::Refill, 1);
        self.receive_messages(heap);
        let mut may_adopt = true;
        loop {
            if heap.bins[class].has_active {
                let span = Span { superslab: heap.sources[class], slice: heap.bins[class].slice };
                if let Some(refilled) = self.refill_from(heap, class, span) {
                    return Some(refilled);
                }
                self.mem.path(Path::ActiveExhausted, 1);
                if !self.mark_full(span) {
                    continue;
                }
                self.span_meta(span).set_state(SpanState::Full);
                heap.bins[class].has_active = false;
            }
            if let Some(span) = self.choose_partial(heap, class) {
                self.mem.path(Path::PartialTaken, 1);
                self.unlist(heap, span);
                self.activate(heap, class, span);
                continue;
            }
            if core::mem::take(&mut may_adopt) && self.adopt(heap) {
                continue;
            }
            self.mem.path(Path::SlabTaken, 1);
            let span = self.new_slab(heap, class)?;
            self.activate(heap, class, span);
        }
    }

    /// Makes a slab the active one of its bin. The bin is empty.
    fn activate(&self, heap: &mut ThreadHeap<M>, class: usize, span: Span<M>) {
        self.mem.path(Path::Activated, 1);
        let slab = self.span_meta(span);
        let bin = &mut heap.bins[class];
        if slab.used.get() == 0 && slab.carved.get() > 0 {
            bin.warm = bin.warm.saturating_sub(1);
        }
        slab.set_state(SpanState::Active);
        (bin.slice, bin.has_active) = (span.slice, true);
        heap.sources[class] = span.superslab;
        heap.link_places[class] = self.mem.link_place(span.superslab, span.slice);
        if let Some(next) = self.span_of(bin.partial_head) {
            self.mem.expect_refill(next.superslab, next.slice);
        }
    }

    /// Takes a block from the active slab, and moves the slab's other free blocks to the bin.
    fn refill_from(&self, heap: &mut ThreadHeap<M>, class: usize, span: Span<M>) -> Option<Refilled<M>> {
        let slab = self.span_meta(span);
        let mut list = slab.local_free.replace(Link::NONE);
        slab.used.set(slab.carved.get());
        if list == Link::NONE {
            list = self.take_remote(span).list;
            self.mem.path(Path::RefillRemote, u64::from(list != Link::NONE));
        } else {
            self.mem.path(Path::RefillLocal, 1);
        }
        let list = self.in_free_order(span.superslab, list, slab.capacity.get());
        let Some(start) = self.start_at(list) else { return self.carve(heap, class, span) };
        let carved = slab.carved.get();
        if carved < slab.capacity.get() && start >= slab.area.get() + carved * slab.stride.get() {
            self.mem.invalid_free(
                Block { superslab: span.superslab, offset: self.link_at(start) },
                InvalidFree::NeverAllocated,
            );
        }
        slab.fresh.set(false);
        heap.ready[class] = self.mem.read_link(span.superslab, self.link_at(start));
        if self.has_keys() {
            self.mem.write_key(span.superslab, self.link_at(start), 0);
        }
        Some(Refilled { superslab: span.superslab, start, contents: Contents::Unknown })
    }

    /// Carves fresh blocks: allocates the first, and links as many further blocks as the policy requires.
    fn carve(&self, heap: &mut ThreadHeap<M>, class: usize, span: Span<M>) -> Option<Refilled<M>> {
        let slab = self.span_meta(span);
        let (first, capacity, stride) = (slab.carved.get(), slab.capacity.get(), slab.stride.get());
        if first == capacity {
            return None;
        }
        self.mem.path(Path::Carve, 1);
        let start = slab.area.get() + first * stride;
        let end = match self.geometry.carve() {
            Carve::Bump => first + 1,
            Carve::Eager => capacity,
            Carve::Page => {
                let page_end = (start + 1).next_multiple_of(PAGE_BYTES as u32);
                let room = page_end.saturating_sub(self.link_at(start) + LINK_BYTES as u32);
                capacity.min(first + 1 + room / stride)
            }
        };
        // Keys in fresh blocks detect a free of a block that was never allocated.
        let has_keys = self.has_keys() && self.process.checks == Checks::Full;
        for block in first + 1..end {
            self.mem.path(Path::CarvedBlock, 1);
            let at = slab.area.get() + block * stride;
            let link = if block + 1 < end { self.free_link(at + stride) } else { Link::NONE };
            self.mem.write_link(span.superslab, self.link_at(at), link);
            if has_keys {
                self.mem.write_key(span.superslab, self.link_at(at), slab.key.get());
            }
        }
        slab.carved.set(end);
        slab.used.set(end);
        slab.fresh.set(true);
        heap.ready[class] = if first + 1 < end { self.free_link(start + stride) } else { Link::NONE };
        let contents = if slab.zeroed.get() { Contents::Zero } else { Contents::Unknown };
        Some(Refilled { superslab: span.superslab, start, contents })
    }

    /// Pushes a freed block onto the local list of a slab that the heap owns. `slab` is the metadata of `span`.
    #[inline(always)]
    pub(crate) fn push_local(&self, span: Span<M>, slab: &SpanMeta, start: u32) -> PushOutcome {
        let (at, link) = (self.link_at(start), slab.local_free.get());
        if !self.has_keys() {
            self.mem.path(Path::PushedWithoutKey, 1);
            self.mem.write_link(span.superslab, at, link);
        } else {
            let place = self.mem.link_place(span.superslab, span.slice);
            if !self.mem.push_link(place, span.superslab, at, link, slab.key.get()) {
                return PushOutcome::Suspect;
            }
        }
        self.list_local(slab, start)
    }

    /// The second part of [`push_local`](Self::push_local), once the block's link and key are written.
    #[inline(always)]
    pub(crate) fn list_local(&self, slab: &SpanMeta, start: u32) -> PushOutcome {
        slab.local_free.change(self.free_link(start));
        let used = slab.used.get() - 1;
        slab.used.change(used);
        if used == 0 { PushOutcome::Emptied } else { PushOutcome::Done }
    }

    /// Lists, keeps or retires a slab that is not active, according to its counts.
    #[cold]
    pub(crate) fn update_slab_list(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        on_slow_path(heap, |heap| self.update_slab_list_inner(heap, span));
    }

    fn update_slab_list_inner(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        self.mem.path(Path::SlabReconsidered, 1);
        let slab = self.span_meta(span);
        if slab.local_free.get() == Link::NONE {
            return;
        }
        if slab.span_state() == SpanState::Full {
            // Without a queued message, `FULL` stays set. Many slabs alternate between listed and full, and an atomic
            // change waits for all earlier stores, including links in blocks that are not in any cache.
            if self.is_queued(span) {
                self.mark_listed(span);
            }
            slab.set_state(SpanState::Partial);
            self.mem.path(Path::SlabListed, 1);
            self.list(heap, span);
        }
        if slab.used.get() == 0 && !self.is_queued(span) {
            let bin = &mut heap.bins[usize::from(slab.class.get())];
            if bin.warm < self.placement.warm_slabs {
                bin.warm += 1;
                self.mem.path(Path::SlabKept, 1);
                return;
            }
            self.mem.path(Path::SlabReturned, 1);
            self.unlist(heap, span);
            self.retire(heap, span);
        }
    }

    /// Appends a slab to its bin's partial list.
    pub(crate) fn list(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        let id = self.id_of(span);
        let slab = self.span_meta(span);
        let bin = &mut heap.bins[usize::from(slab.class.get())];
        let last = core::mem::replace(&mut bin.partial_tail, id);
        slab.prev.set(last);
        slab.next.set(SlabId::NONE);
        match self.span_of(last) {
            Some(last) => self.span_meta(last).next.set(id),
            None => bin.partial_head = id,
        }
    }

    /// Removes a slab from its bin's partial list.
    fn unlist(&self, heap: &mut ThreadHeap<M>, span: Span<M>) {
        let slab = self.span_meta(span);
        let bin = &mut heap.bins[usize::from(slab.class.get())];
        let (prev, next) = (slab.prev.get(), slab.next.get());
        match self.span_of(prev) {
            Some(prev) => self.span_meta(prev).next.set(next),
            None => bin.partial_head = next,
        }
        match self.span_of(next) {
            Some(next) => self.span_meta(next).prev.set(prev),
            None => bin.partial_tail = prev,
        }
    }
}

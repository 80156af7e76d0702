//! Opening and closing thread heaps. A closing heap abandons the SuperSlabs that still hold blocks; another heap adopts
//! them.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::fork::on_slow_path;
use crate::memory::{Link, Memory};
use crate::metadata::meta::{SpanState, Use};
use crate::path::Path;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Opens a heap for a new thread, in the lowest free slot. `None` if all [slots](Memory::heaps) are taken.
    pub fn open_heap(&self) -> Option<ThreadHeap<M>> {
        let id = self.take_heap_slot()?;
        let mut heap = ThreadHeap::empty(self.mem.superslab(0));
        heap.open(id, &self.geometry, self.process.checks);
        Some(heap)
    }

    /// As [`open_heap`](Self::open_heap), in place: a heap takes 5 KiB, which a small stack does not have. `empty_at`
    /// returns an [empty](ThreadHeap::empty) heap for the slot.
    pub fn open_heap_at<'a>(&self, empty_at: impl FnOnce(u32) -> &'a mut ThreadHeap<M>) -> Option<&'a mut ThreadHeap<M>>
    where
        M: 'a,
    {
        let id = self.take_heap_slot()?;
        let heap = empty_at(id);
        heap.open(id, &self.geometry, self.process.checks);
        Some(heap)
    }

    /// The lowest free slot, with its memory initialised.
    fn take_heap_slot(&self) -> Option<u32> {
        self.mem.path(Path::HeapOpened, 1);
        let guard = self.mem.lock();
        let slots = &self.mem.pool().heaps;
        let word = slots.iter().position(|word| word.get() != u64::MAX)?;
        let bit = slots[word].get().trailing_ones();
        let id = word as u32 * 64 + bit;
        if id >= self.mem.heaps() {
            return None;
        }
        slots[word].set(slots[word].get() | 1 << bit);
        drop(guard);
        self.mem.init_heap(id);
        Some(id)
    }

    /// Closes the heap of an exiting thread. Frees its empty spans, abandons the other SuperSlabs and frees the slot.
    pub fn close_heap(&self, mut heap: ThreadHeap<M>) {
        self.close_heap_at(&mut heap);
    }

    /// As [`close_heap`](Self::close_heap), in place. Once its slot is free, nothing uses the heap.
    pub fn close_heap_at(&self, heap: &mut ThreadHeap<M>) {
        self.empty_front_cache(heap);
        self.close_message_queue(heap);
        self.abandon_heap(heap);
    }

    /// Whether a heap's slot is taken. Only reliable in the child of a fork: elsewhere another thread may change it at
    /// any time.
    pub fn is_open(&self, heap: u32) -> bool {
        self.mem.pool().heaps[heap as usize / 64].get() & 1 << (heap % 64) != 0
    }

    /// Closes a heap whose message queue is closed.
    pub(crate) fn abandon_heap(&self, heap: &mut ThreadHeap<M>) {
        self.mem.path(Path::HeapClosed, 1);
        for class in 0..self.geometry.classes().count() {
            self.deactivate(heap, class);
        }
        while let Some(ordinal) = heap.own_head.checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            let mut holds_blocks = false;
            self.for_each_span(superslab, |span| {
                self.collect_remote_unlisted(span);
                if self.span_meta(span).used.get() == 0 {
                    self.free_span_slices(span);
                } else {
                    holds_blocks |= !self.span_meta(span).is_lost();
                }
            });
            self.disown(heap, superslab);
            if self.mem.meta(superslab).used_slices.get() == 0 {
                self.cache_superslab(superslab);
            } else if !holds_blocks {
                self.mark_superslab_lost(superslab);
            } else {
                self.abandon(ordinal);
            }
        }
        let guard = self.mem.lock();
        let slot = &self.mem.pool().heaps[heap.id as usize / 64];
        slot.set(slot.get() & !(1 << (heap.id % 64)));
        drop(guard);
    }

    /// Returns a bin's blocks to its active slab.
    fn deactivate(&self, heap: &mut ThreadHeap<M>, class: usize) {
        let bin = &mut heap.bins[class];
        if !core::mem::replace(&mut bin.has_active, false) {
            return;
        }
        let span = Span { superslab: heap.sources[class], slice: bin.slice };
        let list = core::mem::replace(&mut heap.ready[class], Link::NONE);
        let slab = self.span_meta(span);
        slab.set_state(SpanState::Partial);
        slab.used.set(slab.used.get() - self.prepend_local(span, list));
    }

    /// Collects the remote frees of a span that is in no list. `used` is 0 afterwards if the span's large block was
    /// freed.
    fn collect_remote_unlisted(&self, span: Span<M>) {
        let slab = self.span_meta(span);
        let taken = self.take_remote(span);
        if !slab.is_large() {
            self.prepend_local(span, taken.list);
        }
        slab.used.set(slab.used.get() - taken.count);
    }

    pub(crate) fn for_each_span(&self, superslab: M::SuperSlab, mut visit: impl FnMut(Span<M>)) {
        let mut slice = self.first_slice();
        while slice < self.geometry.slices() {
            if self.mem.meta(superslab).free.get(slice) {
                self.mem.path(Path::SlicePassed, 1);
                slice += 1;
                continue;
            }
            self.mem.path(Path::SpanVisited, 1);
            let span = Span { superslab, slice };
            slice += u32::from(self.span_meta(span).span_slices.get());
            visit(span);
        }
    }

    pub(crate) fn own_superslabs(&self, heap: &ThreadHeap<M>) -> impl Iterator<Item = M::SuperSlab> {
        let at = |link: u32| link.checked_sub(1).map(|ordinal| self.mem.superslab(ordinal));
        core::iter::successors(at(heap.own_head), move |&superslab| at(self.mem.meta(superslab).own_next.get()))
    }

    pub(crate) fn for_each_own_span(&self, heap: &ThreadHeap<M>, mut visit: impl FnMut(Span<M>)) {
        self.own_superslabs(heap).for_each(|superslab| self.for_each_span(superslab, &mut visit));
    }

    fn abandon(&self, ordinal: u32) {
        self.mem.path(Path::Abandoned, 1);
        let guard = self.mem.lock();
        self.mem.entry(ordinal).set_usage(Use::Abandoned);
        let pool = self.mem.pool();
        self.push(&pool.abandoned, ordinal);
        pool.abandoned_hint.set(pool.abandoned_hint.get().min(ordinal));
        drop(guard);
    }

    /// Adopts the abandoned SuperSlab with the lowest ordinal. Returns whether there was one.
    pub(crate) fn adopt(&self, heap: &mut ThreadHeap<M>) -> bool {
        let Some(ordinal) = self.take_abandoned() else { return false };
        self.take_over(heap, self.mem.superslab(ordinal));
        true
    }

    /// Adopts the SuperSlab of a block that is being freed, if it is abandoned. Without an owner, nothing would notice
    /// that its last block is free. False if the SuperSlab is not abandoned, or not yet in the list of abandoned ones:
    /// the caller then frees the block remotely.
    pub(crate) fn adopt_for_free(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) -> bool {
        let ordinal = self.mem.ordinal(superslab);
        let guard = self.mem.lock();
        let entry = self.mem.entry(ordinal);
        if entry.usage() != Use::Abandoned {
            return false;
        }
        self.unlink(&self.mem.pool().abandoned, ordinal);
        entry.set_usage(Use::Slabs);
        drop(guard);
        on_slow_path(heap, |heap| self.take_over(heap, superslab));
        true
    }

    /// Makes the heap the owner of a SuperSlab that was removed from the abandoned list.
    fn take_over(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        self.mem.path(Path::Adopted, 1);
        self.own(heap, superslab);
        let mut holds_blocks = false;
        self.for_each_span(superslab, |span| {
            self.collect_remote_unlisted(span);
            let slab = self.span_meta(span);
            if slab.used.get() == 0 {
                self.free_span_slices(span);
                return;
            }
            if slab.is_lost() {
                return;
            }
            holds_blocks = true;
            let full = slab.local_free.get() == Link::NONE && slab.carved.get() == slab.capacity.get();
            if full && self.mark_full(span) {
                slab.set_state(SpanState::Full);
            } else if slab.is_large() {
                self.free_span_slices(span); // another thread has just freed the large block
            } else {
                slab.set_state(SpanState::Partial);
                self.list(heap, span);
            }
        });
        let meta = self.mem.meta(superslab);
        if meta.used_slices.get() == 0 {
            self.disown(heap, superslab);
            self.cache_superslab(superslab);
        } else if !holds_blocks {
            self.disown(heap, superslab);
            self.mark_superslab_lost(superslab);
        } else if self.find_slice(&meta.free, self.first_slice(), self.geometry.slices(), true).is_some() {
            self.add_available(heap, superslab);
            self.schedule_purge(heap, superslab);
        }
    }

    fn take_abandoned(&self) -> Option<u32> {
        self.mem.path(Path::AdoptionTried, 1);
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        if pool.abandoned.count.get() == 0 {
            return None;
        }
        let mut ordinals = pool.abandoned_hint.get()..pool.high_water.get();
        let ordinal = ordinals.find(|&ordinal| {
            self.mem.path(Path::AbandonedSearched, 1);
            self.mem.entry(ordinal).usage() == Use::Abandoned
        })?;
        pool.abandoned_hint.set(ordinal + 1);
        self.unlink(&pool.abandoned, ordinal);
        self.mem.entry(ordinal).set_usage(Use::Slabs);
        drop(guard);
        Some(ordinal)
    }
}

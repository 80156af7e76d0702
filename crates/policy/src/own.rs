//! The SuperSlabs that a heap owns, in three intrusive lists through their metadata: all, those with free slices, and those to purge.

use crate::field::Field;

use crate::allocator::Allocator;
use crate::fork::on_slow_path;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::meta::SuperSlabMeta;
use crate::os::Purged;
use crate::word::Word;

/// The state of the metadata of a SuperSlab's previous use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// It was purged, or there was none. All slices are clean.
    Lost,
    /// It is intact: it says which slices are clean and which read as zeros.
    Kept,
    /// A huge block has overwritten it. No slice is clean.
    Overwritten,
}

/// The metadata fields that link one of the lists.
pub(crate) struct Links<'a> {
    pub(crate) next: &'a Field<u32>,
    pub(crate) prev: &'a Field<u32>,
}

fn own_links<W>(meta: &SuperSlabMeta<W>) -> Links<'_> {
    Links { next: &meta.own_next, prev: &meta.own_prev }
}

fn purge_links<W>(meta: &SuperSlabMeta<W>) -> Links<'_> {
    Links { next: &meta.purge_next, prev: &meta.purge_prev }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    pub(crate) fn meta_at(&self, link: u32) -> Option<&SuperSlabMeta<M::Word>> {
        link.checked_sub(1).map(|ordinal| self.mem.meta(self.mem.superslab(ordinal)))
    }

    pub(crate) fn link_to(&self, superslab: M::SuperSlab) -> u32 {
        self.mem.ordinal(superslab) + 1
    }

    /// Inserts a SuperSlab into a list between `prev` and `next`. Returns the new head if it is first.
    pub(crate) fn insert(
        &self,
        superslab: M::SuperSlab,
        prev: u32,
        next: u32,
        links: impl Fn(&SuperSlabMeta<M::Word>) -> Links<'_>,
    ) -> Option<u32> {
        let link = self.link_to(superslab);
        let own = links(self.mem.meta(superslab));
        own.prev.set(prev);
        own.next.set(next);
        if let Some(next) = self.meta_at(next) {
            links(next).prev.set(link);
        }
        match self.meta_at(prev) {
            Some(prev) => links(prev).next.set(link),
            None => return Some(link),
        }
        None
    }

    /// Removes a SuperSlab from a list with this head; returns the new head.
    pub(crate) fn remove(
        &self,
        superslab: M::SuperSlab,
        head: u32,
        links: impl Fn(&SuperSlabMeta<M::Word>) -> Links<'_>,
    ) -> u32 {
        let own = links(self.mem.meta(superslab));
        let (prev, next) = (own.prev.get(), own.next.get());
        if let Some(next) = self.meta_at(next) {
            links(next).prev.set(prev);
        }
        match self.meta_at(prev) {
            Some(prev) => {
                links(prev).next.set(next);
                head
            }
            None => next,
        }
    }

    /// Makes the heap the owner of a SuperSlab with initialised metadata.
    pub(crate) fn own(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        meta.in_available.set(false);
        meta.in_purge.set(false);
        self.set_superslab_owner(superslab, heap.owner_word());
        if let Some(head) = self.insert(superslab, 0, heap.own_head, own_links) {
            heap.own_head = head;
        }
        if meta.free.find(self.first_slice(), self.geometry.slices(), true).is_some() {
            self.add_available(heap, superslab);
        }
    }

    /// Removes a SuperSlab from all of the heap's lists; it has no owner afterwards.
    pub(crate) fn disown(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        heap.own_head = self.remove(superslab, heap.own_head, own_links);
        self.remove_available(heap, superslab);
        self.unschedule_purge(heap, superslab);
        self.set_superslab_owner(superslab, 0);
    }

    /// Sets a SuperSlab's owner word, and the owner tags of the slices that spans hold.
    fn set_superslab_owner(&self, superslab: M::SuperSlab, owner: u64) {
        let meta = self.mem.meta(superslab);
        meta.owner.store(owner);
        let (mut from, end) = (self.first_slice(), self.geometry.slices());
        while let Some(slice) = meta.free.find(from, end, false) {
            self.slice_meta(superslab, slice).owner_tag.set_owner(owner);
            from = slice + 1;
        }
    }

    /// Queues a SuperSlab for the purge of its free spans, unless it is queued already.
    pub(crate) fn schedule_purge(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        if !self.policy.purges_spans() {
            return;
        }
        let meta = self.mem.meta(superslab);
        if meta.in_purge.replace(true) {
            return;
        }
        meta.purge_at_ns.set(self.mem.now_ns().saturating_add(self.policy.purge_delay_ns));
        if let Some(head) = self.insert(superslab, heap.purge_tail, 0, purge_links) {
            heap.purge_head = head;
        }
        heap.purge_tail = self.link_to(superslab);
    }

    fn unschedule_purge(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        if meta.in_purge.replace(false) {
            if heap.purge_tail == self.link_to(superslab) {
                heap.purge_tail = meta.purge_prev.get();
            }
            heap.purge_head = self.remove(superslab, heap.purge_head, purge_links);
        }
    }

    /// Purges what is due: free spans of this heap, then the pool's cached memory. Called on slow paths.
    pub(crate) fn purge_due(&self, heap: &mut ThreadHeap<M>) {
        let now_ns = self.mem.now_ns();
        self.purge_spans_due(heap, now_ns);
        self.purge_pool(now_ns);
    }

    /// Purges at once everything that is waiting for its purge delay.
    pub fn purge_now(&self, heap: Option<&mut ThreadHeap<M>>) {
        if let Some(heap) = heap {
            on_slow_path(heap, |heap| self.purge_spans_due(heap, u64::MAX));
        }
        self.purge_pool(u64::MAX);
    }

    fn purge_spans_due(&self, heap: &mut ThreadHeap<M>, now_ns: u64) {
        while let Some(ordinal) = heap.purge_head.checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            if self.mem.meta(superslab).purge_at_ns.get() > now_ns {
                break;
            }
            self.unschedule_purge(heap, superslab);
            self.purge_free_spans(heap, superslab);
            if self.mem.meta(superslab).free.find(self.first_slice(), self.geometry.slices(), true).is_none() {
                self.remove_available(heap, superslab);
            }
        }
    }

    fn purge_free_spans(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        let end = self.geometry.slices();
        let mut from = self.first_slice();
        while let Some(first) = meta.free.find(from, end, true) {
            let after = meta.free.find(first, end, false).unwrap_or(end);
            let mut dirty = first;
            while let Some(start) = meta.clean.find(dirty, after, false) {
                let stop = meta.clean.find(start, after, true).unwrap_or(after);
                let at = self.area_of(start);
                let bytes = (stop << self.geometry.slice_shift()) - at;
                let purged = self.purge(self.arena_range(superslab, at, bytes));
                meta.collapsed.set(false);
                meta.clean.put(start, stop - start, true);
                meta.zero.put(start, stop - start, purged == Purged::Zero);
                if purged == Purged::Hole {
                    self.mark_slices_lost(heap, superslab, start, stop - start);
                }
                dirty = stop;
            }
            from = after;
        }
    }

    /// Takes a SuperSlab from the pool for the heap.
    pub(crate) fn new_superslab(&self, heap: &mut ThreadHeap<M>) -> Option<M::SuperSlab> {
        let (superslab, metadata, zeroed) = self.take_superslab(self.first_pages(heap))?;
        if metadata != Metadata::Kept {
            self.mem.init_meta(superslab);
            let meta = self.mem.meta(superslab);
            meta.used_slices.set(0);
            meta.collapsed.set(false);
            let (first, count) = (self.first_slice(), self.geometry.slices() - self.first_slice());
            meta.free.put(first, count, true);
            meta.clean.put(first, count, metadata == Metadata::Lost);
            meta.zero.put(first, count, zeroed);
        }
        self.own(heap, superslab);
        if metadata == Metadata::Overwritten {
            self.schedule_purge(heap, superslab);
        }
        Some(superslab)
    }
}

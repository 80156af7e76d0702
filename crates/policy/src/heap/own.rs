//! The SuperSlabs that a heap owns, in three intrusive lists through their metadata: all, those with free slices, and
//! those to purge.

use crate::metadata::field::Field;

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::span::SpanRequest;
use crate::memory::Memory;
use crate::metadata::meta::SuperSlabMeta;
use crate::metadata::shared_word::Word;
use crate::path::Path;

/// The state of the metadata of a SuperSlab's previous use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// The metadata was purged, or there was none. All slices are clean.
    Lost,
    /// The metadata is intact: it records which slices are clean and which read as zeros.
    Kept,
    /// A huge block has overwritten the metadata. No slice is clean.
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

impl<M: Memory, G: Geometry> Allocator<M, G> {
    pub(crate) fn meta_at(&self, link: u32) -> Option<&SuperSlabMeta<M::Word>> {
        link.checked_sub(1).map(|ordinal| self.mem.meta(self.mem.superslab(ordinal)))
    }

    pub(crate) fn link_to(&self, superslab: M::SuperSlab) -> u32 {
        self.mem.ordinal(superslab) + 1
    }

    /// Inserts a SuperSlab into a list between `prev` and `next`. Returns the new head if the SuperSlab is now the
    /// first.
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

    /// Removes a SuperSlab from the list that starts at `head`; returns the new head.
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
        if self.find_slice(&meta.free, self.first_slice(), self.geometry.slices(), true).is_some() {
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
        while let Some(slice) = self.find_slice(&meta.free, from, end, false) {
            self.mem.path(Path::SliceOwned, 1);
            self.slice_meta(superslab, slice).owner_tag.set_owner(owner);
            from = slice + 1;
        }
    }

    /// Takes a SuperSlab from the pool for the heap, which needs it for `request`.
    pub(crate) fn new_superslab(&self, heap: &mut ThreadHeap<M>, request: SpanRequest) -> Option<M::SuperSlab> {
        let (superslab, metadata, zeroed) = self.take_superslab(self.new_pages(heap, request))?;
        self.mem.path(Path::SuperSlabTaken, 1);
        if metadata != Metadata::Kept {
            self.mem.init_meta(superslab);
            let meta = self.mem.meta(superslab);
            meta.used_slices.set(0);
            meta.collapsed.set(false);
            let (first, count) = (self.first_slice(), self.geometry.slices() - self.first_slice());
            self.mem.path(Path::SuperSlabInitialised, 1);
            self.mem.path(Path::SliceInitialised, u64::from(count));
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

//! The list of a heap's SuperSlabs that have free slices, sorted by ordinal: spans are placed at the lowest address
//! that fits.
//!
//! A heap may own thousands of SuperSlabs without enough contiguous slices for a request. To keep searches short, the
//! heap records the request of a search that failed and the last SuperSlab that it visited. A search for a request that
//! is at least as hard to place starts after this SuperSlab. If a SuperSlab gains free slices (by a free or an
//! adoption), the record is cut back to the SuperSlab before it.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::own::Links;
use crate::heap::span::{SpanFit, SpanRequest};
use crate::memory::Memory;
use crate::metadata::meta::SuperSlabMeta;
use crate::path::Path;

/// Number of hints of a heap.
const HINTS: usize = 256;
/// log2 of the number of neighbouring ordinals that share a hint.
const HINT_SHIFT: u32 = 5;

/// Hints: some SuperSlabs of the list (ordinal + 1; 0: none). To insert a SuperSlab, the walk starts at the nearest
/// hint before it instead of at the head.
pub(crate) struct AvailableHints([u32; HINTS]);

impl AvailableHints {
    pub(crate) const NONE: AvailableHints = AvailableHints([0; HINTS]);

    fn slot(&mut self, link: u32) -> &mut u32 {
        &mut self.0[(link >> HINT_SHIFT) as usize % HINTS]
    }

    /// Records a SuperSlab that was inserted.
    fn add(&mut self, link: u32) {
        *self.slot(link) = link;
    }

    /// Forgets a SuperSlab that is removed.
    fn remove(&mut self, link: u32) {
        let slot = self.slot(link);
        if *slot == link {
            *slot = 0;
        }
    }

    /// The last hint before `link`; 0 if there is none.
    fn before(&self, link: u32) -> u32 {
        self.0.iter().copied().filter(|&hint| hint < link).max().unwrap_or(0)
    }

    /// All hints.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied().filter(|&hint| hint != 0)
    }
}

/// A search for a different request replaces the record if it visited at least this many SuperSlabs.
const LOOKED_AT_MIN: u32 = 64;

/// The record: `request` does not fit into any SuperSlab of the list up to `to` (ordinal + 1; 0: none).
pub(crate) struct FailedSearch {
    request: SpanRequest,
    to: u32,
}

impl FailedSearch {
    pub(crate) const NONE: FailedSearch = FailedSearch { request: SpanRequest::Slices(u32::MAX), to: 0 };
}

impl<M: Memory> ThreadHeap<M> {
    /// The request that is known not to fit into this SuperSlab of the list (ordinal + 1), if there is one.
    pub(crate) fn failed_search_at(&self, link: u32) -> Option<SpanRequest> {
        (link <= self.failed_search.to).then_some(self.failed_search.request)
    }
}

fn available_links<W>(meta: &SuperSlabMeta<W>) -> Links<'_> {
    Links { next: &meta.available_next, prev: &meta.available_prev }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Adds a SuperSlab with free slices to the list. Also called when a listed SuperSlab gains free slices.
    pub(crate) fn add_available(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let link = self.link_to(superslab);
        if !self.mem.meta(superslab).in_available.replace(true) {
            self.insert_available(heap, superslab, link);
        }
        if link <= heap.failed_search.to {
            heap.failed_search.to = self.mem.meta(superslab).available_prev.get();
        }
    }

    fn insert_available(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab, link: u32) {
        self.mem.path(Path::Listed, 1);
        let prev = self.available_before(heap, link);
        let next = self.available_after(heap, prev);
        if let Some(head) = self.insert(superslab, prev, next, available_links) {
            heap.available_head = head;
        }
        if next == 0 {
            heap.available_tail = link;
        }
        heap.available_hints.add(link);
    }

    /// The predecessor of a SuperSlab that is to be inserted.
    fn available_before(&self, heap: &ThreadHeap<M>, link: u32) -> u32 {
        if heap.available_tail < link {
            return heap.available_tail;
        }
        self.mem.path(Path::HintsSearched, 1);
        let failed_to = if heap.failed_search.to < link { heap.failed_search.to } else { 0 };
        let mut prev = failed_to.max(heap.available_hints.before(link));
        loop {
            self.mem.path(Path::ListPassed, 1);
            let next = self.available_after(heap, prev);
            if next == 0 || next > link {
                return prev;
            }
            prev = next;
        }
    }

    fn available_after(&self, heap: &ThreadHeap<M>, link: u32) -> u32 {
        self.meta_at(link).map_or(heap.available_head, |meta| meta.available_next.get())
    }

    /// Removes a SuperSlab whose last free slice was taken.
    pub(crate) fn remove_available(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        if !meta.in_available.replace(false) {
            return;
        }
        self.mem.path(Path::Unlisted, 1);
        let (link, prev) = (self.link_to(superslab), meta.available_prev.get());
        if heap.available_tail == link {
            heap.available_tail = prev;
        }
        if heap.failed_search.to == link {
            heap.failed_search.to = prev;
        }
        heap.available_hints.remove(link);
        heap.available_head = self.remove(superslab, heap.available_head, available_links);
    }

    /// First fit among the heap's SuperSlabs.
    pub(crate) fn find_available(
        &self,
        heap: &mut ThreadHeap<M>,
        request: SpanRequest,
    ) -> Option<(M::SuperSlab, SpanFit)> {
        let is_as_hard = self.is_as_hard(request, heap.failed_search.request);
        let (mut looked_at, mut last) = (0, if is_as_hard { heap.failed_search.to } else { 0 });
        let mut found = None;
        while let Some(ordinal) = self.available_after(heap, last).checked_sub(1) {
            self.mem.path(Path::SpanSearched, 1);
            let superslab = self.mem.superslab(ordinal);
            found = self.find_slices(superslab, request).map(|found| (superslab, found));
            if found.is_some() {
                break;
            }
            (looked_at, last) = (looked_at + 1, ordinal + 1);
        }
        // A record of a harder request shortens fewer searches. It replaces the old record only after a long search.
        if request == heap.failed_search.request || heap.failed_search.to == 0 || looked_at >= LOOKED_AT_MIN {
            heap.failed_search = FailedSearch { request, to: last };
        }
        found
    }

    /// Whether `request` cannot fit where `other` does not fit.
    fn is_as_hard(&self, request: SpanRequest, other: SpanRequest) -> bool {
        let slices = |bytes: u64| bytes.div_ceil(1 << self.geometry.slice_shift());
        match (request, other) {
            (SpanRequest::Slices(slices), SpanRequest::Slices(others)) => slices >= others,
            (SpanRequest::Bytes { bytes, align }, SpanRequest::Bytes { bytes: others, align: others_align }) => {
                bytes >= others && align >= others_align
            }
            (SpanRequest::Bytes { bytes, .. }, SpanRequest::Slices(others)) => slices(bytes) >= u64::from(others),
            // The reserved start of the SuperSlab and the alignment cost less than one slice each.
            (SpanRequest::Slices(own), SpanRequest::Bytes { bytes, .. }) => u64::from(own) >= slices(bytes) + 2,
        }
    }
}

//! Which SuperSlabs get huge pages, by how much of them blocks can fill (`--huge-fill`).
//!
//! A block of 1 MiB does not fit twice into a SuperSlab of 2 MiB: with a huge page, it would make almost twice its size
//! resident. So a SuperSlab that is taken for a block gets huge pages only if as many blocks of that size as fit into it
//! fill the required share. The last SuperSlab of a huge block gets them only if the block fills that share of it.
//!
//! As with [huge heaps](crate::heap::huge_heaps), the advice is set when a SuperSlab is taken into use, and present pages
//! stay as they are.

use crate::allocator::Allocator;
use crate::arena::layout::reserved_bytes;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::span::SpanRequest;
use crate::memory::Memory;
use crate::metadata::meta::Pages;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The page size for a new SuperSlab of a heap, which is taken for `request`.
    pub(crate) fn new_pages(&self, heap: &ThreadHeap<M>, request: SpanRequest) -> Pages {
        match self.first_pages(heap) {
            Pages::Small => Pages::Small,
            Pages::Huge => {
                let bytes = self.fillable_bytes(request);
                self.paging(|paging, placement| paging.pages_if_filled(placement, bytes))
            }
        }
    }

    /// How many bytes of an empty SuperSlab requests like this one fill.
    fn fillable_bytes(&self, request: SpanRequest) -> u64 {
        let slice_bytes = 1u64 << self.geometry.slice_shift();
        let bytes = match request {
            SpanRequest::Slices(slices) => u64::from(slices) * slice_bytes,
            SpanRequest::Bytes { bytes, .. } => bytes,
        };
        let usable_bytes = (1u64 << self.geometry.superslab_shift()) - u64::from(reserved_bytes(&self.geometry));
        // The first span shares its first slice with the metadata.
        let first = u64::from(bytes <= usable_bytes);
        let others = usable_bytes.saturating_sub(bytes) / bytes.next_multiple_of(slice_bytes).max(1);
        bytes * (first + others)
    }

    /// Requests huge pages for the whole run of a huge block. A run with advice of both kinds has several VMAs, which one
    /// `mremap` cannot move on older kernels, and the moved memory keeps its advice.
    pub(crate) fn ask_for_one_size(&self, ordinal: u32) {
        let run = self.mem.entry(ordinal).run.get();
        if (ordinal..ordinal + run).any(|part| self.mem.entry(part).pages() == Pages::Small) {
            let _guard = self.mem.lock();
            self.ask_for(Pages::Huge, ordinal, run);
        }
    }

    /// Requests the page size for the last SuperSlab of the run of a huge block with this many bytes. Lock held.
    pub(crate) fn ask_for_tail(&self, ordinal: u32, bytes: u64) {
        let run = self.mem.entry(ordinal).run.get();
        let before_bytes = u64::from(run - 1) << self.geometry.superslab_shift();
        let tail_bytes = bytes.saturating_sub(before_bytes);
        if self.paging(|paging, placement| paging.pages_if_filled(placement, tail_bytes)) == Pages::Small {
            self.ask_for(Pages::Small, ordinal + run - 1, 1);
        }
    }
}

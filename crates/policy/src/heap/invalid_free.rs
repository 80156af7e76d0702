//! Detection of double and invalid frees.
//!
//! A free block that was allocated before holds its slab's *key* after its link. Allocation clears the key. If a block
//! holds the key when it is freed, either it is already free, or its data equals the key by chance. A slow path
//! searches the free lists to decide. Each span gets a new key, so bytes from an earlier use of the memory do not
//! match. Blocks with headers have no room for a key.
//!
//! The link is written before the key is read, so that a page that the program never touched takes one fault, not two.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Block, Link, Memory};
use crate::metadata::meta::{SpanMeta, SpanState, Use};
use crate::metadata::shared_word::Word;
use crate::policy::process::Checks;

/// The kind of an invalid `free` or `realloc` of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFree {
    /// The block is free.
    DoubleFree,
    /// The pointer is not the start of a block.
    Inside,
    /// The pointer is to memory that is in no span and in no huge block.
    NotInUse,
    /// The pointer is to a part of a slab that was never allocated.
    NeverAllocated,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether free blocks carry a key.
    #[inline(always)]
    pub(crate) fn has_keys(&self) -> bool {
        self.geometry.header_bytes() == 0
    }

    /// A key for a new span: never 0, and unique among 2^32 spans.
    pub(crate) fn new_key(&self) -> u32 {
        const SPREAD: u32 = 0x9E37_79B1; // odd, so that no two products are equal
        self.mem.pool().add_span_stats().wrapping_add(1).wrapping_mul(SPREAD).max(1)
    }

    /// Checks a pointer without reading its heap or its free lists. For slow paths.
    pub fn check_pointer(&self, block: Block<M::SuperSlab>) -> Option<InvalidFree> {
        match self.mem.entry(self.mem.ordinal(block.superslab)).usage() {
            Use::Slabs | Use::Abandoned => {}
            Use::Huge if block.offset == 0 => return None,
            Use::Huge | Use::HugeTail => return Some(InvalidFree::Inside),
            Use::Free | Use::Idle | Use::Warm | Use::HugeIdle | Use::Lost => return Some(InvalidFree::NotInUse),
        }
        if !self.slice_meta(block.superslab, block.offset >> self.geometry.slice_shift()).owner_tag.is_in_span() {
            return Some(InvalidFree::NotInUse);
        }
        self.check_in_span(self.span_at(block).1, block)
    }

    /// Checks the pointer of a resize. With [`Checks::Full`], also checks whether the block is free, which reads the
    /// block and may fault in a page. Otherwise `resize` checks this, but only if the block does not suit the new size.
    pub fn check_resized(&self, heap: &ThreadHeap<M>, block: Block<M::SuperSlab>) -> Option<InvalidFree> {
        if !self.is_huge(block) {
            let slab = self.slice_meta(block.superslab, block.offset >> self.geometry.slice_shift());
            if [heap.fast_free_tag, heap.fast_cache_tag].into_iter().any(|tag| slab.owner_tag.is_owned_by(tag)) {
                return self.check_in_span(slab, block);
            }
        }
        let invalid_free = self.check_pointer(block);
        let looks = invalid_free.is_none() && self.process.checks == Checks::Full;
        if looks && self.appears_free(heap, block) { Some(InvalidFree::DoubleFree) } else { invalid_free }
    }

    /// Whether a block is free, judged by its contents and by the lists of this heap.
    #[inline]
    pub(crate) fn appears_free(&self, heap: &ThreadHeap<M>, block: Block<M::SuperSlab>) -> bool {
        if self.is_huge(block) {
            return false; // the caller has checked that the huge block is in use
        }
        let (span, slab) = self.span_at(block);
        if slab.is_large() {
            return self.remote_list(span) != Link::NONE;
        }
        let start = block.offset - self.geometry.header_bytes();
        let at = self.link_at(start);
        if !self.has_keys() || self.mem.read_key(span.superslab, at) != slab.key.get() {
            return false;
        }
        let link = self.mem.read_link(span.superslab, at);
        let is_cached = self.geometry.front_cache() > 0 && link == self.free_link(start);
        if self.mem.meta(span.superslab).owner.load() == heap.owner_word() && !is_cached {
            return self.is_free(heap, span, start);
        }
        self.looks_free(slab, link, slab.key.get())
    }

    /// Checks a pointer into a span in use.
    fn check_in_span(&self, slab: &SpanMeta, block: Block<M::SuperSlab>) -> Option<InvalidFree> {
        if slab.is_large() {
            return (block.offset != slab.area.get()).then_some(InvalidFree::Inside);
        }
        let start = block.offset.checked_sub(self.geometry.header_bytes());
        match start.and_then(|start| self.index_of(slab, start)) {
            Some(index) if index < slab.carved.get() => None,
            Some(_) => Some(InvalidFree::NeverAllocated),
            None => Some(InvalidFree::Inside),
        }
    }

    /// The index of the block that starts at an offset of the slab.
    fn index_of(&self, slab: &SpanMeta, start: u32) -> Option<u32> {
        let from_area = start.checked_sub(slab.area.get())?;
        let (index, rest) = (from_area / slab.stride.get(), from_area % slab.stride.get());
        (rest == 0 && index < slab.capacity.get()).then_some(index)
    }

    /// The kind of error when a block is freed that [is free](Self::is_free) already. A bin's fresh blocks are sorted
    /// by address.
    pub(crate) fn kind_of_free(&self, heap: &ThreadHeap<M>, span: Span<M>, start: u32) -> InvalidFree {
        let slab = self.span_meta(span);
        let is_fresh = slab.span_state() == SpanState::Active && slab.fresh.get();
        let fresh = is_fresh.then(|| self.start_at(heap.ready[usize::from(slab.class.get())])).flatten();
        if fresh.is_some_and(|first| start >= first) { InvalidFree::NeverAllocated } else { InvalidFree::DoubleFree }
    }

    /// Whether a block of one of the heap's slabs is free. Its link may already be overwritten.
    pub(crate) fn is_free(&self, heap: &ThreadHeap<M>, span: Span<M>, start: u32) -> bool {
        let slab = self.span_meta(span);
        let in_bin = match slab.span_state() {
            SpanState::Active => heap.ready[usize::from(slab.class.get())],
            _ => Link::NONE,
        };
        [slab.local_free.get(), in_bin, self.remote_list(span)]
            .into_iter()
            .any(|list| self.list_contains(span, list, start))
    }

    fn list_contains(&self, span: Span<M>, list: Link, start: u32) -> bool {
        let slab = self.span_meta(span);
        let mut next = list;
        for _ in 0..slab.capacity.get() {
            match self.start_at(next) {
                Some(at) if at == start => return true,
                // After a double free the list may continue anywhere.
                Some(at) if self.index_of(slab, at).is_some() => {
                    next = self.mem.read_link(span.superslab, self.link_at(at));
                }
                _ => return false,
            }
        }
        false
    }

    /// Whether `link` and `key`, from a block of another heap's slab, are those of a free block: a link into the slab,
    /// and the slab's key.
    pub(crate) fn looks_free(&self, slab: &SpanMeta, link: Link, key: u32) -> bool {
        key == slab.key.get()
            && match self.start_at(link) {
                None => true,
                Some(at) => slab.is_large() || self.index_of(slab, at).is_some(),
            }
    }
}

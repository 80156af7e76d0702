//! Programs that err: blocks freed twice, pointers that are no block's.
//!
//! A free block that was handed out before carries its slab's *key* behind its link. Handing it out clears the key, so a
//! block that has it when it is freed is free already, or holds four bytes of data that happen to equal it: a slow path looks
//! through the lists. Each span gets another key, so what an earlier use of the memory left is none. Blocks with headers
//! have no room for a key.
//!
//! The link is written before the key is looked at: a page that the program never touched takes one fault, not two.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Block, Link, Memory};
use crate::meta::{SlabMeta, SpanState, Use};
use crate::process::Checks;
use crate::word::Word;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// Freed or resized a block that is free.
    DoubleFree,
    /// Freed or resized what is no block's first byte.
    Inside,
    /// The same with memory that holds no block: all of its span is free.
    NotInUse,
    /// The same with a place in a slab that no block was handed out from yet.
    NeverHandedOut,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether free blocks carry a key.
    #[inline(always)]
    pub(crate) fn has_keys(&self) -> bool {
        self.geometry.header_bytes() == 0
    }

    /// A key for a new span: never 0, and the same for no other of 2^32 spans.
    pub(crate) fn new_key(&self) -> u32 {
        const SPREAD: u32 = 0x9E37_79B1; // odd, so that no two products are equal
        self.mem.pool().count_span().wrapping_add(1).wrapping_mul(SPREAD).max(1)
    }

    /// What is wrong with a pointer, seen from outside its heap: asked on slow paths.
    pub fn misuse_of(&self, block: Block<M::SuperSlab>) -> Option<Misuse> {
        match self.mem.entry(self.mem.ordinal(block.superslab)).usage() {
            Use::Slabs | Use::Abandoned => {}
            Use::Huge if block.offset == 0 => return None,
            Use::Huge | Use::HugeTail => return Some(Misuse::Inside),
            Use::Free | Use::Idle | Use::Warm | Use::HugeIdle | Use::Lost => return Some(Misuse::NotInUse),
        }
        if !self.unit_meta(block.superslab, block.offset >> self.geometry.unit_shift()).home.is_held() {
            return Some(Misuse::NotInUse);
        }
        self.misuse_in(self.span_at(block).1, block)
    }

    /// What is wrong with a pointer to a block that is to be resized. Whether the block is free is looked at here where close
    /// checks were asked for: that reads a page of it which need not be there. Else `resize` looks, where the block moves.
    pub fn misuse_of_resized(&self, heap: &ThreadHeap<M>, block: Block<M::SuperSlab>) -> Option<Misuse> {
        if !self.is_huge(block) {
            let slab = self.unit_meta(block.superslab, block.offset >> self.geometry.unit_shift());
            if slab.home.is_in(heap.quick) {
                return self.misuse_in(slab, block);
            }
        }
        let misuse = self.misuse_of(block);
        let looks = misuse.is_none() && self.process.checks == Checks::Full;
        if looks && self.is_seen_free(heap, block) { Some(Misuse::DoubleFree) } else { misuse }
    }

    /// Whether a block is free, as far as reading it can tell.
    #[inline]
    pub(crate) fn is_seen_free(&self, heap: &ThreadHeap<M>, block: Block<M::SuperSlab>) -> bool {
        if self.is_huge(block) {
            return false; // then it would not be in use
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
        if self.mem.meta(span.superslab).owner.load() == heap.owner_word() {
            return self.is_free(heap, span, start);
        }
        self.looks_free(slab, self.mem.read_link(span.superslab, at), slab.key.get())
    }

    /// What is wrong with a pointer into a span that is held.
    fn misuse_in(&self, slab: &SlabMeta, block: Block<M::SuperSlab>) -> Option<Misuse> {
        if slab.is_large() {
            return (block.offset != slab.area.get()).then_some(Misuse::Inside);
        }
        let start = block.offset.checked_sub(self.geometry.header_bytes());
        match start.and_then(|start| self.index_of(slab, start)) {
            Some(index) if index < slab.carved.get() => None,
            Some(_) => Some(Misuse::NeverHandedOut),
            None => Some(Misuse::Inside),
        }
    }

    /// Which block of a slab starts at an offset.
    fn index_of(&self, slab: &SlabMeta, start: u32) -> Option<u32> {
        let from_area = start.checked_sub(slab.area.get())?;
        let (index, rest) = (from_area / slab.stride.get(), from_area % slab.stride.get());
        (rest == 0 && index < slab.capacity.get()).then_some(index)
    }

    /// What is wrong with a free of a block that [is free](Self::is_free). A bin's fresh blocks are in order of addresses.
    pub(crate) fn misuse_of_free(&self, heap: &ThreadHeap<M>, span: Span<M>, start: u32) -> Misuse {
        let slab = self.slab_meta(span);
        let is_fresh = slab.span_state() == SpanState::Active && slab.fresh.get();
        let fresh = is_fresh.then(|| self.start_at(heap.ready[usize::from(slab.class.get())])).flatten();
        if fresh.is_some_and(|first| start >= first) { Misuse::NeverHandedOut } else { Misuse::DoubleFree }
    }

    /// Whether a block of a slab that the heap owns is free. Its link may be written anew already.
    pub(crate) fn is_free(&self, heap: &ThreadHeap<M>, span: Span<M>, start: u32) -> bool {
        let slab = self.slab_meta(span);
        let in_bin = match slab.span_state() {
            SpanState::Active => heap.ready[usize::from(slab.class.get())],
            _ => Link::NONE,
        };
        [slab.local_free.get(), in_bin, self.remote_list(span)].into_iter().any(|list| self.leads_to(span, list, start))
    }

    fn leads_to(&self, span: Span<M>, list: Link, start: u32) -> bool {
        let slab = self.slab_meta(span);
        let mut next = list;
        for _ in 0..slab.capacity.get() {
            match self.start_at(next) {
                Some(at) if at == start => return true,
                // Behind a block that was freed twice anything may follow.
                Some(at) if self.index_of(slab, at).is_some() => {
                    next = self.mem.read_link(span.superslab, self.link_at(at));
                }
                _ => return false,
            }
        }
        false
    }

    /// Whether what stood in a block of another heap's slab is what a free block holds: its key, and a link of its slab.
    pub(crate) fn looks_free(&self, slab: &SlabMeta, link: Link, key: u32) -> bool {
        key == slab.key.get()
            && match self.start_at(link) {
                None => true,
                Some(at) => slab.is_large() || self.index_of(slab, at).is_some(),
            }
    }
}

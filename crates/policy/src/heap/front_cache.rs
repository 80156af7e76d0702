//! The front cache: per thread and class an array of free blocks, whichever heap they belong to.
//!
//! If the policy has one, a free puts the block into the array of its class, and an allocation takes the block that was
//! put there last. To its slab, a block in a front cache is in use: the slab neither empties nor lends the block to
//! another thread. If an array is full, its older half returns to the slabs. Everything returns when the heap closes,
//! and when the program asks for a purge.
//!
//! A block in a front cache holds a link to itself, which no list contains, and its slab's key. So a second free is
//! recognised whichever thread frees it.
//!
//! The child of a fork that interrupts the thread must never find a count that includes an empty or an old entry. So a
//! release fence, which on x86 only restricts the compiler, separates the writes of counts and entries.

use core::sync::atomic::{Ordering, fence};

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::fork::on_slow_path;
use crate::heap::free::FastFree;
use crate::heap::invalid_free::InvalidFree;
use crate::memory::{Block, Link, Memory};
use crate::metadata::field::Field;
use crate::metadata::meta::SpanMeta;
use crate::metadata::shared_word::Word;
use crate::path::Path;

/// Maximum number of blocks per class: counts are stored in bytes.
pub const FRONT_CACHE_MAX: u32 = u8::MAX as u32;

/// A block in a front cache: the ordinal of its SuperSlab and its start. Stored plus 1: an empty entry is 0, so that
/// the first access to an entry's page is a write.
#[derive(Clone, Copy)]
struct Cached {
    ordinal: u32,
    start: u32,
}

impl Cached {
    fn to_bits(self) -> u64 {
        (u64::from(self.ordinal) << 32 | u64::from(self.start)) + 1
    }

    fn from_bits(bits: u64) -> Cached {
        Cached { ordinal: ((bits - 1) >> 32) as u32, start: (bits - 1) as u32 }
    }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    #[inline(always)]
    fn front_entry(&self, heap: &ThreadHeap<M>, class: usize, slot: u32) -> &Field<u64> {
        self.mem.front_cache_entry(heap.id, class as u32 * self.geometry.front_cache() + slot)
    }

    /// Takes the block of a class that was freed last; `None` if there is none in the front cache.
    pub(crate) fn take_cached(&self, heap: &mut ThreadHeap<M>, class: usize) -> Option<Block<M::SuperSlab>> {
        let last = heap.front_counts[class].checked_sub(1)?;
        self.mem.path(Path::FrontHit, 1);
        let entry = self.front_entry(heap, class, u32::from(last));
        let Cached { ordinal, start } = Cached::from_bits(entry.get());
        heap.front_counts[class] = last;
        fence(Ordering::Release);
        entry.change(0);
        let superslab = self.mem.superslab(ordinal);
        if self.has_keys() {
            self.mem.write_key(superslab, self.link_at(start), 0);
        }
        Some(self.hand_out(superslab, start, class))
    }

    /// Puts a block of the heap's own slab into the front cache, if its array has room and nothing indicates that the
    /// block is free. `span` has the block's slice, and `slab` that slice's metadata.
    #[inline]
    pub(crate) fn free_to_cache_fast(
        &self,
        heap: &mut ThreadHeap<M>,
        span: Span<M>,
        slab: &SpanMeta,
        block: Block<M::SuperSlab>,
    ) -> FastFree {
        if !slab.owner_tag.is_owned_by(heap.fast_cache_tag) {
            return FastFree::NotFast;
        }
        let class = usize::from(slab.class.get());
        if slab.is_large() || u32::from(heap.front_counts[class]) == self.geometry.front_cache() {
            return FastFree::NotFast;
        }
        let start = block.offset - self.geometry.header_bytes();
        if !self.mark_cached(span, slab, start, |_| true) {
            return FastFree::NotFast;
        }
        self.mem.path(Path::FrontPut, 1);
        self.push_cached(heap, class, span.superslab, start);
        FastFree::Done
    }

    /// Puts a block into the front cache, after its pointer was checked.
    pub(crate) fn free_to_cache(&self, heap: &mut ThreadHeap<M>, span: Span<M>, block: Block<M::SuperSlab>) {
        self.mem.path(Path::FrontPutSlow, 1);
        let slab = self.span_meta(span);
        let (class, start) = (usize::from(slab.class.get()), block.offset - self.geometry.header_bytes());
        let is_own = self.mem.meta(span.superslab).owner.load() == heap.owner_word();
        let is_free = |link| !is_own || link == self.free_link(start) || self.is_free(heap, span, start);
        if !self.mark_cached(span, slab, start, is_free) {
            let what = if is_own { self.kind_of_free(heap, span, start) } else { InvalidFree::DoubleFree };
            return self.mem.invalid_free(block, what);
        }
        let blocks = self.geometry.front_cache();
        if u32::from(heap.front_counts[class]) == blocks {
            on_slow_path(heap, |heap| self.return_oldest(heap, class, blocks.div_ceil(2)));
        }
        self.push_cached(heap, class, span.superslab, start);
    }

    /// Writes the link and the key of a block in a front cache. If its contents are those of a free block, and
    /// `is_free` of its link confirms it, leaves them as they are and returns false.
    fn mark_cached(&self, span: Span<M>, slab: &SpanMeta, start: u32, is_free: impl FnOnce(Link) -> bool) -> bool {
        if !self.has_keys() {
            return true;
        }
        self.mem.path(Path::FrontMarked, 1);
        let (at, mark) = (self.link_at(start), self.free_link(start));
        let (link, key) = self.mem.exchange(span.superslab, at, mark, slab.key.get());
        if self.looks_free(slab, link, key) {
            self.mem.exchange(span.superslab, at, link, key);
            if is_free(link) {
                return false;
            }
            self.mem.exchange(span.superslab, at, mark, slab.key.get());
        }
        true
    }

    #[inline]
    fn push_cached(&self, heap: &mut ThreadHeap<M>, class: usize, superslab: M::SuperSlab, start: u32) {
        let count = heap.front_counts[class];
        let cached = Cached { ordinal: self.mem.ordinal(superslab), start };
        self.front_entry(heap, class, u32::from(count)).change(cached.to_bits());
        fence(Ordering::Release);
        heap.front_counts[class] = count + 1;
    }

    /// Returns all blocks of the front cache to their slabs.
    pub(crate) fn empty_front_cache(&self, heap: &mut ThreadHeap<M>) {
        if self.geometry.front_cache() == 0 {
            return;
        }
        for class in 0..self.geometry.classes().count() {
            on_slow_path(heap, |heap| self.return_oldest(heap, class, u32::from(heap.front_counts[class])));
        }
    }

    /// Returns the `count` oldest blocks of a class to their slabs.
    #[cold]
    fn return_oldest(&self, heap: &mut ThreadHeap<M>, class: usize, count: u32) {
        self.mem.path(Path::FrontFlush, 1);
        for slot in 0..count {
            let cached = Cached::from_bits(self.front_entry(heap, class, slot).get());
            self.return_to_slab(heap, cached);
        }
        let all = u32::from(heap.front_counts[class]);
        self.mem.path(Path::FrontMoved, u64::from(all - count));
        self.mem.path(Path::FrontCleared, u64::from(count));
        for slot in 0..all {
            let moved = if slot + count < all { self.front_entry(heap, class, slot + count).get() } else { 0 };
            self.front_entry(heap, class, slot).set(moved);
        }
        heap.front_counts[class] = (all - count) as u8;
    }

    /// Returns a block to its slab, which may belong to another heap or to none.
    fn return_to_slab(&self, heap: &mut ThreadHeap<M>, cached: Cached) {
        let Cached { ordinal, start } = cached;
        let superslab = self.mem.superslab(ordinal);
        let owner = self.mem.meta(superslab).owner.load();
        if owner == 0 && self.adopt_for_free(heap, superslab) {
            return self.return_to_slab(heap, cached);
        }
        let (span, slab) = self.span_at(Block { superslab, offset: start });
        if owner != heap.owner_word() {
            self.mem.path(Path::FrontReturnedRemote, 1);
            return self.free_remote(span, start, self.link_at(start));
        }
        self.mem.path(Path::FrontReturned, 1);
        self.mem.write_link(superslab, self.link_at(start), slab.local_free.get());
        let outcome = self.list_local(slab, start);
        self.update_after_push(heap, span, outcome);
    }

    /// Whether every entry of the front cache is a block in use, of the entry's class.
    pub(crate) fn is_front_cache_valid(&self, heap: &ThreadHeap<M>) -> bool {
        let is_valid = |class: usize, slot| {
            let Cached { ordinal, start } = Cached::from_bits(self.front_entry(heap, class, slot).get());
            let block = Block { superslab: self.mem.superslab(ordinal), offset: start + self.geometry.header_bytes() };
            self.check_pointer(block).is_none() && usize::from(self.span_at(block).1.class.get()) == class
        };
        let classes = heap.front_counts.iter().enumerate();
        classes
            .flat_map(|(class, &count)| (0..u32::from(count)).map(move |slot| (class, slot)))
            .all(|(class, slot)| is_valid(class, slot))
    }
}

//! Blocks larger than any size class: large blocks have a span each, huge blocks a run of SuperSlabs.

use crate::allocator::Allocator;
use crate::arena::layout::reserved_bytes;
use crate::arena::mapping::{Backing, Fresh};
use crate::arena::pool::count_one;
use crate::arena::run_cache::RunContents;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::alloc::Request;
use crate::heap::fork::on_slow_path;
use crate::heap::span::SpanRequest;
use crate::limits::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::memory::{Block, Memory};
use crate::metadata::meta::{CLASS_LARGE, Pages, SpanState, Use};
use crate::path::Path;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Allocates a large or a huge block, depending on size and alignment.
    #[cold]
    pub(crate) fn allocate_large_or_huge(
        &self,
        heap: &mut ThreadHeap<M>,
        request: Request,
    ) -> Option<Block<M::SuperSlab>> {
        let bytes = request.bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let align = request.align.max(16);
        let slice_bytes = 1u64 << self.geometry.slice_shift();
        let fits = u64::from(reserved_bytes(&self.geometry)).next_multiple_of(align).saturating_add(bytes)
            <= 1 << self.geometry.superslab_shift();
        let (block, zeroed) = if bytes <= self.geometry.large_bytes_max() && align <= slice_bytes && fits {
            on_slow_path(heap, |heap| self.allocate_large(heap, bytes, align))?
        } else {
            on_slow_path(heap, |heap| self.purge_due(heap));
            let contents = if request.zeroed { RunContents::Zeros } else { RunContents::Any };
            let block = self.allocate_huge(bytes, align, contents)?;
            let entry = self.mem.entry(self.mem.ordinal(block.superslab));
            (block, entry.zeroed.replace(false))
        };
        if request.zeroed && !zeroed {
            self.mem.path(Path::Zeroed, 1);
            self.mem.zero(block.superslab, u64::from(block.offset), request.bytes);
        }
        Some(block)
    }

    fn allocate_large(&self, heap: &mut ThreadHeap<M>, bytes: u64, align: u64) -> Option<(Block<M::SuperSlab>, bool)> {
        self.mem.path(Path::LargeTaken, 1);
        self.receive_messages(heap);
        let span = self.take_span(heap, SpanRequest::Bytes { bytes, align }, SpanState::Full)?;
        let slab = self.span_meta(span);
        let offset = slab.area.get().next_multiple_of(align as u32);
        slab.class.set(CLASS_LARGE);
        slab.area.set(offset);
        slab.stride.set(self.span_end(span) - offset);
        slab.capacity.set(1);
        slab.carved.set(1);
        slab.used.set(1);
        Some((Block { superslab: span.superslab, offset }, slab.zeroed.get()))
    }

    /// Allocates a run of SuperSlabs: the best fit among cached runs, else other [present
    /// memory](crate::arena::run_cache), else the lowest free run.
    pub(crate) fn allocate_huge(&self, bytes: u64, align: u64, contents: RunContents) -> Option<Block<M::SuperSlab>> {
        self.mem.path(Path::HugeTaken, 1);
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let shift = self.geometry.superslab_shift();
        let align = if bytes >= HUGE_PAGE_BYTES { align.max(HUGE_PAGE_BYTES) } else { align };
        let align_superslabs = ((align >> shift) as u32).max(1);
        let run = u32::try_from(bytes.div_ceil(1 << shift)).ok()?;
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        let ordinal = match self.take_reusable_run(run, align_superslabs, bytes, contents) {
            Some(ordinal) => {
                count_one(&pool.huge_taken_idle);
                ordinal
            }
            None => {
                let ordinal = self.take_run(run, align_superslabs, bytes)?;
                count_one(&pool.huge_taken_free);
                ordinal
            }
        };
        pool.huge_superslabs.set(pool.huge_superslabs.get() + self.mem.entry(ordinal).run.get());
        self.ask_for_tail(ordinal, bytes);
        self.update_peak();
        drop(guard);
        Some(Block { superslab: self.mem.superslab(ordinal), offset: 0 })
    }

    /// Takes the best fit among cached runs. At most a quarter of the run may be wasted.
    pub(crate) fn take_best_fit(&self, bytes: u64, align_superslabs: u32) -> Option<u32> {
        let pool = self.mem.pool();
        let bytes_of = |ordinal: &u32| self.mem.entry(*ordinal).bytes.get();
        let fits = |ordinal: &u32| {
            self.mem.path(Path::CachedRunExamined, 1);
            let has = bytes_of(ordinal);
            has >= bytes && has - bytes <= has / 4 && ordinal.is_multiple_of(align_superslabs)
        };
        let ordinal = self.listed(&pool.huge_idle).filter(fits).min_by_key(bytes_of)?;
        self.unlink_cached(ordinal);
        let entry = self.mem.entry(ordinal);
        entry.set_usage(Use::Huge);
        // The address of a separate mapping may not be aligned enough. The run then keeps its ordinals and gets a new
        // mapping.
        if !self.is_aligned(ordinal, align_superslabs)
            && self.back(ordinal, entry.run.get(), align_superslabs, Fresh::HugeBlock, Pages::Huge) == Backing::Refused
        {
            self.set_free(ordinal, entry.run.get());
            return None;
        }
        Some(ordinal)
    }

    fn take_run(&self, run: u32, align_superslabs: u32, bytes: u64) -> Option<u32> {
        let ordinal = self.find_free_or_evict(run, align_superslabs)?;
        if self.back(ordinal, run, align_superslabs, Fresh::HugeBlock, Pages::Huge) == Backing::Refused {
            self.free_unless_lost(ordinal, run);
            return None;
        }
        self.join_run(ordinal, 0, run);
        let entry = self.mem.entry(ordinal);
        entry.set_usage(Use::Huge);
        entry.run.set(run);
        entry.bytes.set(bytes);
        Some(ordinal)
    }

    /// Marks SuperSlabs `from..run` as parts of the run at `ordinal`. The first entry records whether the whole run
    /// reads as zeros.
    fn join_run(&self, ordinal: u32, from: u32, run: u32) {
        let head = self.mem.entry(ordinal);
        for part in ordinal + from..ordinal + run {
            let entry = self.mem.entry(part);
            self.mem.path(Path::RunPartJoined, 1);
            head.zeroed.set(head.zeroed.get() && entry.zeroed.get());
            entry.set_usage(Use::HugeTail);
            entry.prepared.set(true);
            entry.clean.set(false);
        }
    }

    #[cold]
    pub(crate) fn free_huge(&self, block: Block<M::SuperSlab>) {
        self.mem.path(Path::HugeFreed, 1);
        let guard = self.mem.lock();
        let ordinal = self.mem.ordinal(block.superslab);
        let entry = self.mem.entry(ordinal);
        let pool = self.mem.pool();
        pool.huge_superslabs.set(pool.huge_superslabs.get() - entry.run.get());
        entry.set_usage(Use::HugeIdle);
        entry.zeroed.set(false);
        entry.since_ns.set(self.mem.now_ns());
        self.push(&pool.huge_idle, ordinal);
        pool.huge_idle_bytes.set(pool.huge_idle_bytes.get() + entry.bytes.get());
        while pool.huge_idle_bytes.get() > self.placement.huge_cache_bytes {
            let Some(oldest) = pool.huge_idle.tail.get().checked_sub(1) else { break };
            self.evict_huge(oldest);
        }
        drop(guard);
        self.purge_pool(self.mem.now_ns());
    }

    /// Grows a huge block over the SuperSlabs that follow it, if they are free or a [cached
    /// run](crate::arena::run_cache). Returns whether the block grew.
    pub(crate) fn grow_huge(&self, block: Block<M::SuperSlab>, bytes: u64) -> bool {
        let guard = self.mem.lock();
        let ordinal = self.mem.ordinal(block.superslab);
        let entry = self.mem.entry(ordinal);
        let Ok(run) = u32::try_from(bytes.div_ceil(1 << self.geometry.superslab_shift())) else { return false };
        let have = entry.run.get();
        self.mem.path(Path::HugeGrown, 1);
        if run > have {
            if !self.extend_run(ordinal, run) {
                return false;
            }
            let pool = self.mem.pool();
            pool.huge_superslabs.set(pool.huge_superslabs.get() + run - have);
            self.update_peak();
        }
        entry.bytes.set(bytes);
        self.ask_for_tail(ordinal, bytes);
        drop(guard);
        true
    }

    /// Extends a run over the SuperSlabs that follow it, if they are free or a cached run. Otherwise returns false and
    /// leaves the run unchanged. Lock held.
    pub(crate) fn extend_run(&self, ordinal: u32, run: u32) -> bool {
        let have = self.mem.entry(ordinal).run.get();
        let (next, more) = (ordinal + have, run - have);
        if self.is_cached_run(next, more) {
            self.split_run(next, more);
        } else if !self.continues(next, more) || !self.claim_if_free(next, more) {
            return false;
        } else if self.back(next, more, 1, Fresh::HugeBlock, Pages::Huge) == Backing::Refused {
            self.free_unless_lost(next, more);
            return false;
        }
        self.join_run(ordinal, have, run);
        self.mem.entry(ordinal).run.set(run);
        true
    }

    /// Usable bytes of a block.
    pub fn usable_bytes(&self, block: Block<M::SuperSlab>) -> u64 {
        if self.is_huge(block) {
            return self.mem.entry(self.mem.ordinal(block.superslab)).bytes.get();
        }
        let (_, slab) = self.span_at(block);
        let header_bytes = if slab.is_large() { 0 } else { self.geometry.header_bytes() };
        u64::from(slab.stride.get() - header_bytes)
    }
}

//! Resizing: in place if the size fits, else by growing in place, by `mremap`, or by copying.

use crate::allocator::Allocator;
use crate::arena::run_cache::RunContents;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::alloc::Request;
use crate::heap::fork::on_slow_path;
use crate::heap::invalid_free::InvalidFree;
use crate::limits::PAGE_BYTES;
use crate::memory::{ArenaRange, Block, Memory};
use crate::metadata::shared_word::Word;
use crate::path::Path;
use crate::policy::vocabulary::Align;

/// Huge blocks from this size on are moved by `mremap`.
const REMAP_BYTES_MIN: u64 = 1 << 20;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Resizes a block to `bytes` (above 0). On `None` the block is unchanged. The caller handles `realloc(p, 0)`,
    /// which frees.
    pub fn resize(
        &self,
        heap: &mut ThreadHeap<M>,
        block: Block<M::SuperSlab>,
        bytes: u64,
    ) -> Option<Block<M::SuperSlab>> {
        let usable = self.usable_bytes(block);
        if bytes <= usable && bytes >= usable / 2 {
            return Some(block);
        }
        // Check before anything is allocated: an allocation collects remote frees, and could return this very block.
        if self.appears_free(heap, block) {
            self.mem.invalid_free(block, InvalidFree::DoubleFree);
            return None;
        }
        if bytes > usable {
            self.mem.path(Path::GrowthTried, 1);
            if on_slow_path(heap, |heap| self.grow_in_place(heap, block, bytes)) {
                return Some(block);
            }
            if let Some(moved) = on_slow_path(heap, |heap| self.move_by_remap(heap, block, bytes)) {
                return Some(moved);
            }
        }
        self.mem.path(Path::Copied, 1);
        let new = self.allocate(heap, Request::plain(bytes))?;
        self.mem.copy(new, block, usable.min(bytes));
        self.free(heap, block);
        Some(new)
    }

    fn grow_in_place(&self, heap: &mut ThreadHeap<M>, block: Block<M::SuperSlab>, bytes: u64) -> bool {
        let Some(bytes) = bytes.checked_next_multiple_of(PAGE_BYTES) else { return false };
        if self.is_huge(block) {
            return self.grow_huge(block, bytes);
        }
        let (span, _) = self.span_at(block);
        if self.mem.meta(span.superslab).owner.load() != heap.owner_word() {
            return false; // the slices belong to another heap
        }
        let grows = self.span_meta(span).is_large() && self.grow_span(heap, span, bytes);
        if grows
            && self
                .find_slice(&self.mem.meta(span.superslab).free, self.first_slice(), self.geometry.slices(), true)
                .is_none()
        {
            self.remove_available(heap, span.superslab);
        }
        grows
    }

    /// Moves a huge block's page tables to a larger run. This takes no faults and keeps huge pages, but may add up to
    /// two VMAs.
    fn move_by_remap(
        &self,
        heap: &mut ThreadHeap<M>,
        block: Block<M::SuperSlab>,
        bytes: u64,
    ) -> Option<Block<M::SuperSlab>> {
        let pool = self.mem.pool();
        if !self.is_huge(block) || self.usable_bytes(block) < REMAP_BYTES_MIN {
            return None;
        }
        if self.paging(|paging, _| paging.huge.is_hugetlb()) {
            return None;
        }
        if pool.moved_vmas.get() + 2 > self.process.moved_vmas_max {
            return None;
        }
        self.purge_due(heap);
        let new = self.allocate_huge(bytes, 1, RunContents::None)?;
        self.mem.path(Path::HugeMoved, 1);
        self.mem.entry(self.mem.ordinal(new.superslab)).zeroed.set(false);
        self.ask_for_one_size(self.mem.ordinal(block.superslab));
        let from = self.whole_run(self.mem.ordinal(block.superslab));
        let to = self.run_range(self.mem.ordinal(new.superslab), from.bytes);
        if self.placement.align != Align::Arena {
            return self.move_between_maps(block, new, from, to);
        }
        if self.perform(|_, ops| ops.remap(from, to.start)).is_err() {
            // A failed mremap may have unmapped the target.
            let mapped = self.map_again(to);
            if mapped {
                self.free_huge(new);
            } else {
                self.release_moved(self.mem.ordinal(new.superslab), false);
            }
            return None;
        }
        let mapped = self.map_again(from);
        self.release_moved(self.mem.ordinal(block.superslab), mapped);
        Some(new)
    }

    /// As [`move_by_remap`](Self::move_by_remap), for runs with separate mappings: the old mapping disappears with the
    /// move.
    fn move_between_maps(
        &self,
        old: Block<M::SuperSlab>,
        new: Block<M::SuperSlab>,
        from: ArenaRange,
        to: ArenaRange,
    ) -> Option<Block<M::SuperSlab>> {
        let moved = self.perform(|_, ops| ops.remap(from, to.start)).is_ok();
        let (gone, result) = if moved { (old, Some(new)) } else { (new, None) };
        let ordinal = self.mem.ordinal(gone.superslab);
        let run = self.mem.entry(ordinal).run.get();
        let guard = self.mem.lock();
        let is_gone = if moved {
            self.unbind(ordinal, run);
            true
        } else {
            // A failed mremap may have unmapped part of the target.
            self.unmap_own(ordinal, run)
        };
        drop(guard);
        self.release_moved(ordinal, is_gone);
        result
    }
}

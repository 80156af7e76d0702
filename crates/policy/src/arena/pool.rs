//! The pool: which SuperSlabs of the arena are free, idle or used by huge blocks. Shared by all heaps, under one lock.

use crate::metadata::field::Field;

use crate::allocator::Allocator;
use crate::arena::mapping::{Backing, Fresh};
use crate::geometry::Geometry;
use crate::heap::own::Metadata;
use crate::memory::{ArenaRange, Memory};
use crate::metadata::meta::{EntryList, Pages, Use};
use crate::path::Path;

pub(crate) fn count_one(counter: &Field<u64>) {
    counter.set(counter.get() + 1);
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    pub(crate) fn run_range(&self, ordinal: u32, bytes: u64) -> ArenaRange {
        ArenaRange { start: u64::from(ordinal) << self.geometry.superslab_shift(), bytes }
    }

    fn superslab_range(&self, ordinal: u32) -> ArenaRange {
        self.run_range(ordinal, 1 << self.geometry.superslab_shift())
    }

    pub(crate) fn push(&self, list: &EntryList, ordinal: u32) {
        let entry = self.mem.entry(ordinal);
        let head = list.head.replace(ordinal + 1);
        entry.prev.set(0);
        entry.next.set(head);
        match head.checked_sub(1) {
            Some(head) => self.mem.entry(head).prev.set(ordinal + 1),
            None => list.tail.set(ordinal + 1),
        }
        list.count.set(list.count.get() + 1);
    }

    pub(crate) fn unlink(&self, list: &EntryList, ordinal: u32) {
        let entry = self.mem.entry(ordinal);
        let (prev, next) = (entry.prev.get(), entry.next.get());
        match prev.checked_sub(1) {
            Some(prev) => self.mem.entry(prev).next.set(next),
            None => list.head.set(next),
        }
        match next.checked_sub(1) {
            Some(next) => self.mem.entry(next).prev.set(prev),
            None => list.tail.set(prev),
        }
        list.count.set(list.count.get() - 1);
    }

    /// The entries of a list, the most recent first.
    pub(crate) fn listed(&self, list: &EntryList) -> impl Iterator<Item = u32> {
        let next = |&ordinal: &u32| self.mem.entry(ordinal).next.get().checked_sub(1);
        core::iter::successors(list.head.get().checked_sub(1), next)
    }

    /// The entries of a list, the oldest first.
    pub(crate) fn listed_from_the_oldest(&self, list: &EntryList) -> impl Iterator<Item = u32> {
        let prev = |&ordinal: &u32| self.mem.entry(ordinal).prev.get().checked_sub(1);
        core::iter::successors(list.tail.get().checked_sub(1), prev)
    }

    /// Takes a SuperSlab for a heap. In this order: the most recent idle SuperSlab unless it was purged, part of a
    /// [cached run](crate::arena::run_cache), the purged idle SuperSlab, the lowest free SuperSlab. Memory that is not
    /// present gets the page size `pages`.
    pub(crate) fn take_superslab(&self, pages: Pages) -> Option<(M::SuperSlab, Metadata, bool)> {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        let ordinal = match self.take_reusable() {
            Some(ordinal) => {
                count_one(&pool.taken_idle);
                ordinal
            }
            None => {
                let ordinal = self.find_free_or_evict(1, 1)?;
                count_one(&pool.taken_free);
                ordinal
            }
        };
        let entry = self.mem.entry(ordinal);
        let before = entry.usage();
        let metadata = match before {
            Use::Idle if !entry.clean.get() => Metadata::Kept,
            Use::HugeIdle => Metadata::Overwritten,
            _ => Metadata::Lost,
        };
        entry.set_usage(Use::Slabs);
        entry.bytes.set(0);
        let needs_preparing = before != Use::Warm && (entry.clean.get() || !entry.prepared.get());
        if needs_preparing && !self.prepare(ordinal, pages) {
            self.free_unless_lost(ordinal, 1);
            return None;
        }
        entry.clean.set(false);
        let zeroed = entry.zeroed.replace(false);
        pool.superslabs.set(pool.superslabs.get() + 1);
        self.update_peak();
        drop(guard);
        Some((self.mem.superslab(ordinal), metadata, zeroed))
    }

    fn take_reusable(&self) -> Option<u32> {
        let idle = &self.mem.pool().idle;
        let kept = idle.head.get().checked_sub(1);
        let is_purged = |ordinal| self.mem.entry(ordinal).usage() == Use::Idle && self.mem.entry(ordinal).clean.get();
        if kept.is_none_or(is_purged)
            && let Some(cut) = self.split_cached(1, 1)
        {
            return Some(cut);
        }
        self.unlink(idle, kept?);
        kept
    }

    pub(crate) fn update_peak(&self) {
        let pool = self.mem.pool();
        let now = pool.superslabs.get() + pool.huge_superslabs.get();
        pool.superslabs_peak.set(pool.superslabs_peak.get().max(now));
    }

    /// First fit of `count` free SuperSlabs whose first ordinal is a multiple of `align`. Lock held.
    fn find_free(&self, count: u32, align: u32) -> Option<u32> {
        self.mem.path(Path::FreeSearched, 1);
        let pool = self.mem.pool();
        let hint = pool.free_hint.get();
        let mut first = hint.next_multiple_of(align);
        while let Some(taken) = self.last_taken(first, count)? {
            first = (taken + 1).next_multiple_of(align);
        }
        self.claim(first, count);
        // In a search for one SuperSlab without alignment, every SuperSlab that was skipped is in use.
        if first == hint || (count, align) == (1, 1) {
            pool.free_hint.set(first + count);
        }
        Some(first)
    }

    /// The last SuperSlab in use within a range; `Some(None)` if the whole range is free. `None` if the range exceeds
    /// the arena.
    fn last_taken(&self, first: u32, count: u32) -> Option<Option<u32>> {
        let end = first.checked_add(count).filter(|&end| end <= self.mem.ordinals())?;
        self.mem.path(Path::PlaceTried, 1);
        let written = end.min(self.mem.pool().high_water.get());
        Some((first..written).rev().find(|&ordinal| {
            self.mem.path(Path::EntryExamined, 1);
            self.mem.entry(ordinal).usage() != Use::Free
        }))
    }

    /// Extends the table over ordinals that were never used, and initialises their entries.
    fn claim(&self, first: u32, count: u32) {
        let pool = self.mem.pool();
        for ordinal in pool.high_water.get()..first + count {
            self.mem.path(Path::EntryClaimed, 1);
            let entry = self.mem.entry(ordinal);
            entry.reset();
            entry.zeroed.set(true);
            entry.clean.set(true);
            entry.prepared.set(false);
        }
        let end = pool.high_water.get().max(first + count);
        let start = pool.high_water.replace(end);
        self.lock_new(start, end);
    }

    /// As [`find_free`](Self::find_free), but evicts the cached memory if the arena is full. Lock held.
    pub(crate) fn find_free_or_evict(&self, count: u32, align: u32) -> Option<u32> {
        self.find_free(count, align).or_else(|| {
            let pool = self.mem.pool();
            while let Some(ordinal) = pool.huge_idle.tail.get().checked_sub(1) {
                self.evict_huge(ordinal);
            }
            while let Some(ordinal) = pool.idle.tail.get().checked_sub(1) {
                self.evict_idle(ordinal);
            }
            self.find_free(count, align)
        })
    }

    pub(crate) fn set_free(&self, first: u32, count: u32) {
        for ordinal in first..first + count {
            self.mem.entry(ordinal).set_usage(Use::Free);
        }
        let pool = self.mem.pool();
        pool.free_hint.set(pool.free_hint.get().min(first));
    }

    /// Marks SuperSlabs in a hole of the arena as lost: they are never used again. None of them may hold a block. Lock
    /// held.
    pub(crate) fn mark_lost(&self, first: u32, count: u32) {
        // The last huge page of the arena may extend beyond its last SuperSlab.
        let count = count.min(self.mem.ordinals() - first);
        self.claim(first, count);
        for ordinal in first..first + count {
            let entry = self.mem.entry(ordinal);
            if matches!(entry.usage(), Use::Idle | Use::Warm) {
                self.unlink(&self.mem.pool().idle, ordinal);
            }
            entry.set_usage(Use::Lost);
        }
        let pool = self.mem.pool();
        pool.lost_superslabs.set(pool.lost_superslabs.get() + count);
    }

    /// As [`mark_lost`](Self::mark_lost), for a heap's SuperSlab that contains only holes and free slices.
    pub(crate) fn mark_superslab_lost(&self, superslab: M::SuperSlab) {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        pool.superslabs.set(pool.superslabs.get() - 1);
        self.mark_lost(self.mem.ordinal(superslab), 1);
        drop(guard);
    }

    /// Caches an empty SuperSlab for reuse. Evicts the oldest cached SuperSlabs if there are too many.
    pub(crate) fn cache_superslab(&self, superslab: M::SuperSlab) {
        self.mem.path(Path::SuperSlabReturned, 1);
        let guard = self.mem.lock();
        let ordinal = self.mem.ordinal(superslab);
        let pool = self.mem.pool();
        pool.superslabs.set(pool.superslabs.get() - 1);
        self.keep(ordinal, Use::Idle);
        let is_over_limit = || pool.idle.count.get() > self.placement.cache_superslabs;
        if is_over_limit() && self.paging(|paging, _| paging.purges()) {
            while is_over_limit() {
                let Some(oldest) = pool.idle.tail.get().checked_sub(1) else { break };
                self.evict_idle(oldest);
            }
        }
        drop(guard);
    }

    /// Adds an unused SuperSlab to the idle list as its most recent entry. Lock held.
    pub(crate) fn keep(&self, ordinal: u32, usage: Use) {
        let entry = self.mem.entry(ordinal);
        entry.set_usage(usage);
        entry.since_ns.set(self.mem.now_ns());
        self.push(&self.mem.pool().idle, ordinal);
    }

    /// All SuperSlabs of a huge run, as a range of the arena. Purges and moves always cover the whole range: there may
    /// be pages of an earlier use after the block's last byte, and a boundary inside a huge page would split it.
    pub(crate) fn whole_run(&self, ordinal: u32) -> ArenaRange {
        self.run_range(ordinal, u64::from(self.mem.entry(ordinal).run.get()) << self.geometry.superslab_shift())
    }

    /// Claims exactly these SuperSlabs, if they are all free. Lock held.
    pub(crate) fn claim_if_free(&self, first: u32, count: u32) -> bool {
        let free = self.last_taken(first, count) == Some(None);
        if free {
            self.claim(first, count);
        }
        free
    }

    /// Frees a run whose pages were moved away. Its range was mapped again, or is a hole if `mapped` is false.
    pub(crate) fn release_moved(&self, ordinal: u32, mapped: bool) {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        let run = self.mem.entry(ordinal).run.get();
        pool.huge_superslabs.set(pool.huge_superslabs.get() - run);
        pool.moved_vmas.set(pool.moved_vmas.get() + 2);
        if !mapped {
            return self.mark_lost(ordinal, run);
        }
        for part in ordinal..ordinal + run {
            self.mem.entry(part).zeroed.set(true);
            self.mem.entry(part).clean.set(true);
        }
        self.set_free(ordinal, run);
        drop(guard);
    }

    /// Frees SuperSlabs for which no memory could be mapped, except those that were lost. Lock held.
    pub(crate) fn free_unless_lost(&self, first: u32, count: u32) {
        for ordinal in first..first + count {
            if self.mem.entry(ordinal).usage() != Use::Lost {
                self.set_free(ordinal, 1);
            }
        }
    }

    pub(crate) fn is_unused(&self, ordinal: u32) -> bool {
        ordinal >= self.mem.pool().high_water.get()
            || matches!(self.mem.entry(ordinal).usage(), Use::Free | Use::Idle | Use::Warm)
    }

    /// Prepares a SuperSlab's memory as the policy requires, before its first use after a mapping or purge. Lock held.
    /// False if no memory could be mapped.
    fn prepare(&self, ordinal: u32, pages: Pages) -> bool {
        let backed = self.back(ordinal, 1, 1, Fresh::SuperSlab, pages);
        if backed == Backing::Mapped {
            self.prefault_superslab(self.superslab_range(ordinal));
        }
        backed != Backing::Refused
    }
}

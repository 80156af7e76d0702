//! Purging: which unused memory is returned to the kernel, and when.
//!
//! Three kinds of memory are purged after they were unused for the purge delay: free spans of SuperSlabs in use (in the
//! order of the owning heap's purge list), idle SuperSlabs, and cached huge runs (both in the order of the pool's
//! lists). With a [decay curve](crate::arena::backlog) each of these lists shrinks over the delay instead. Idle
//! SuperSlabs and huge runs beyond the cache limits are purged immediately. Slow paths call `purge_due`; nothing is
//! purged in between. `os.rs` makes the system calls.

use crate::allocator::Allocator;
use crate::arena::paging::Purged;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::fork::on_slow_path;
use crate::heap::own::Links;
use crate::memory::Memory;
use crate::metadata::meta::{Entry, SuperSlabMeta, Use};
use crate::path::Path;
use crate::policy::split::Paging;
use crate::policy::vocabulary::PurgeCurve;

fn purge_links<W>(meta: &SuperSlabMeta<W>) -> Links<'_> {
    Links { next: &meta.purge_next, prev: &meta.purge_prev }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Queues a SuperSlab for the purge of its free spans, unless it is queued already.
    pub(crate) fn schedule_purge(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        if !self.paging(|paging, _| paging.purges_spans()) {
            return;
        }
        let meta = self.mem.meta(superslab);
        if meta.in_purge.replace(true) {
            return;
        }
        self.mem.path(Path::PurgeQueued, 1);
        meta.purge_at_ns.set(self.mem.now_ns().saturating_add(self.placement.purge_delay_ns));
        if let Some(head) = self.insert(superslab, heap.purge_tail, 0, purge_links) {
            heap.purge_head = head;
        }
        heap.purge_tail = self.link_to(superslab);
    }

    /// Removes a SuperSlab from the purge list, if it is listed.
    pub(crate) fn unschedule_purge(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        if meta.in_purge.replace(false) {
            self.mem.path(Path::PurgeUnqueued, 1);
            if heap.purge_tail == self.link_to(superslab) {
                heap.purge_tail = meta.purge_prev.get();
            }
            heap.purge_head = self.remove(superslab, heap.purge_head, purge_links);
        }
    }

    /// Purges what is due: free spans of this heap, then the pool's cached memory. Called on slow paths.
    pub(crate) fn purge_due(&self, heap: &mut ThreadHeap<M>) {
        self.mem.path(Path::PurgeConsidered, 1);
        let now_ns = self.mem.now_ns();
        self.purge_spans_due(heap, now_ns);
        self.purge_pool(now_ns);
    }

    /// Empties the heap's front cache, and purges everything that is waiting for its purge delay.
    pub fn purge_now(&self, heap: Option<&mut ThreadHeap<M>>) {
        if let Some(heap) = heap {
            self.empty_front_cache(heap);
            on_slow_path(heap, |heap| self.purge_spans_due(heap, u64::MAX));
        }
        self.purge_pool(u64::MAX);
    }

    fn purge_spans_due(&self, heap: &mut ThreadHeap<M>, now_ns: u64) {
        if self.is_on_curve(now_ns) {
            return self.purge_spans_on_curve(heap, now_ns);
        }
        while let Some(ordinal) = heap.purge_head.checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            if self.mem.meta(superslab).purge_at_ns.get() > now_ns {
                break;
            }
            self.purge_scheduled(heap, superslab);
        }
    }

    fn purge_spans_on_curve(&self, heap: &mut ThreadHeap<M>, now_ns: u64) {
        let mut scheduled = 0;
        let count = || {
            let mut next = heap.purge_head;
            while let Some(meta) = self.meta_at(next) {
                self.mem.path(Path::QueueCounted, 1);
                scheduled += 1;
                next = meta.purge_next.get();
            }
            scheduled
        };
        self.mem.path(Path::CurveEvaluated, 1);
        let Some(allowed) = heap.purge_backlog.allowed(now_ns, self.placement.purge_delay_ns, count) else { return };
        self.mem.path(Path::EpochEnded, 1);
        while u64::from(scheduled) > allowed
            && let Some(ordinal) = heap.purge_head.checked_sub(1)
        {
            self.purge_scheduled(heap, self.mem.superslab(ordinal));
            scheduled -= 1;
        }
        heap.purge_backlog.set_before(scheduled);
    }

    /// Purges the free spans of a SuperSlab of the purge list.
    fn purge_scheduled(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        self.unschedule_purge(heap, superslab);
        self.purge_free_spans(heap, superslab);
        if self.find_slice(&self.mem.meta(superslab).free, self.first_slice(), self.geometry.slices(), true).is_none() {
            self.remove_available(heap, superslab);
        }
    }

    /// Whether a decay curve decides what is purged now. `u64::MAX` purges everything.
    fn is_on_curve(&self, now_ns: u64) -> bool {
        self.placement.purge_curve != PurgeCurve::Step && self.placement.purge_delay_ns > 0 && now_ns != u64::MAX
    }

    fn purge_free_spans(&self, heap: &ThreadHeap<M>, superslab: M::SuperSlab) {
        self.mem.path(Path::SpansPurged, 1);
        let meta = self.mem.meta(superslab);
        let end = self.geometry.slices();
        let mut from = self.first_slice();
        while let Some(first) = self.find_slice(&meta.free, from, end, true) {
            let after = self.find_slice(&meta.free, first, end, false).unwrap_or(end);
            self.mem.path(Path::RunPassed, 1);
            let mut dirty = first;
            while let Some(start) = self.find_slice(&meta.clean, dirty, after, false) {
                let stop = self.find_slice(&meta.clean, start, after, true).unwrap_or(after);
                self.mem.path(Path::RangePurged, 1);
                self.mem.path(Path::SlicePurged, u64::from(stop - start));
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

    /// Purges cached memory that was idle for the purge delay. Lists are sorted by time, the oldest at the tail.
    pub(crate) fn purge_pool(&self, now_ns: u64) {
        let guard = self.mem.lock();
        if self.is_on_curve(now_ns) {
            return self.purge_pool_on_curve(now_ns);
        }
        let pool = self.mem.pool();
        let due = |ordinal: u32| {
            self.mem.entry(ordinal).since_ns.get().saturating_add(self.placement.purge_delay_ns) <= now_ns
        };
        let purges = || self.paging(|paging, _| paging.purges());
        let mut next = pool.idle.tail.get();
        while let Some(ordinal) = next.checked_sub(1).filter(|&ordinal| due(ordinal)) {
            self.mem.path(Path::IdleExamined, 1);
            let entry = self.mem.entry(ordinal);
            if entry.usage() == Use::Idle && !entry.clean.get() {
                // Without purges nothing leaves the list, and its whole length would be searched each time.
                if !purges() {
                    return;
                }
                self.purge_idle(ordinal);
            }
            next = self.mem.entry(ordinal).prev.get();
        }
        while let Some(ordinal) = pool.huge_idle.tail.get().checked_sub(1).filter(|&ordinal| due(ordinal)) {
            if !purges() {
                return;
            }
            self.evict_huge(ordinal);
        }
        drop(guard);
    }

    /// Purges cached memory along the decay curve. Lock held.
    fn purge_pool_on_curve(&self, now_ns: u64) {
        self.mem.path(Path::CurveEvaluated, 1);
        let (pool, delay_ns) = (self.mem.pool(), self.placement.purge_delay_ns);
        let purges = || self.paging(|paging, _| paging.purges());
        if let Some(allowed) = pool.idle_backlog.allowed(now_ns, delay_ns, || self.idle_present()) {
            self.mem.path(Path::EpochEnded, 1);
            let mut next = pool.idle.tail.get();
            while let Some(ordinal) = next.checked_sub(1)
                && u64::from(self.idle_present()) > allowed
                && purges()
            {
                next = self.mem.entry(ordinal).prev.get();
                if self.mem.entry(ordinal).usage() == Use::Idle {
                    self.purge_idle(ordinal);
                }
            }
            pool.idle_backlog.set_before(self.idle_present());
        }
        if let Some(allowed) = pool.huge_idle_backlog.allowed(now_ns, delay_ns, || pool.huge_idle.count.get()) {
            self.mem.path(Path::EpochEnded, 1);
            while u64::from(pool.huge_idle.count.get()) > allowed
                && let Some(ordinal) = pool.huge_idle.tail.get().checked_sub(1)
                && purges()
            {
                self.evict_huge(ordinal);
            }
            pool.huge_idle_backlog.set_before(pool.huge_idle.count.get());
        }
    }

    /// Number of empty SuperSlabs that were not purged. Lock held.
    fn idle_present(&self) -> u32 {
        let is_present = |entry: &Entry| {
            self.mem.path(Path::IdleCounted, 1);
            entry.usage() == Use::Idle && !entry.clean.get()
        };
        self.listed(&self.mem.pool().idle).filter(|&ordinal| is_present(self.mem.entry(ordinal))).count() as u32
    }

    /// Purges an idle SuperSlab, together with the SuperSlabs that share its hugetlb page. Lock held.
    fn purge_idle(&self, ordinal: u32) {
        if self.mem.entry(ordinal).clean.get() || !self.paging(|paging, _| paging.purges()) {
            return;
        }
        self.mem.path(Path::IdlePurged, 1);
        let (first, count) = self.purge_group(ordinal);
        if !(first..first + count).all(|ordinal| self.is_unused(ordinal)) {
            return; // it shares its huge page with a SuperSlab in use
        }
        let purged = self.purge_superslabs(first, count);
        if purged == Purged::Hole {
            return self.mark_lost(first, count);
        }
        for ordinal in (first..first + count).filter(|&ordinal| ordinal < self.mem.pool().high_water.get()) {
            let entry = self.mem.entry(ordinal);
            entry.clean.set(true);
            entry.zeroed.set(purged == Purged::Zero);
        }
    }

    /// The SuperSlabs that must be purged together, because they share a hugetlb page: the first, and their number.
    fn purge_group(&self, ordinal: u32) -> (u32, u32) {
        let group = self.paging(Paging::purge_group);
        (ordinal - ordinal % group, group)
    }

    /// Purges an idle SuperSlab and frees it. Lock held.
    pub(crate) fn evict_idle(&self, ordinal: u32) {
        self.mem.path(Path::IdleEvicted, 1);
        self.purge_idle(ordinal);
        if self.mem.entry(ordinal).usage() != Use::Lost {
            self.unlink(&self.mem.pool().idle, ordinal);
            self.set_free(ordinal, 1);
        }
    }

    /// Purges a cached huge run and frees it. Lock held.
    pub(crate) fn evict_huge(&self, ordinal: u32) {
        let entry = self.mem.entry(ordinal);
        self.unlink_cached(ordinal);
        let run = entry.run.get();
        self.mem.path(Path::RunEvicted, 1);
        self.mem.path(Path::RunPartEvicted, u64::from(run));
        let purged = self.purge_superslabs(ordinal, run);
        let is_clean = self.paging(|paging, _| paging.purges());
        if purged == Purged::Hole {
            return self.mark_lost(ordinal, run);
        }
        for ordinal in ordinal..ordinal + run {
            self.mem.entry(ordinal).zeroed.set(purged == Purged::Zero);
            self.mem.entry(ordinal).clean.set(is_clean);
        }
        self.set_free(ordinal, run);
    }
}

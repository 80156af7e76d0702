//! Reuse of present memory for another kind of request: SuperSlabs from freed huge runs, and huge blocks from empty
//! SuperSlabs.
//!
//! The pool caches empty SuperSlabs and the runs of freed huge blocks in separate lists. A request first searches the
//! list of its own kind. If that list has nothing suitable, the request takes from the other list before it takes
//! memory that would fault:
//! - a SuperSlab, or a shorter run, is split off a cached run; the rest of the run keeps its place in the purge order;
//! - a huge block of one SuperSlab takes an empty SuperSlab.
//!
//! A program that reuses one large buffer may find that its run was shortened. The run is then extended at its end, and
//! only the added part faults.
//!
//! Runs are shared only if one SuperSlab is exactly one huge page. With larger SuperSlabs or small pages, pages that
//! the new owner does not need would stay present; with smaller SuperSlabs, huge pages would be split. `MADV_COLLAPSE`
//! is excluded: a SuperSlab has small pages until it is full.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::Memory;
use crate::metadata::meta::{EntryList, Pages, Use};
use crate::path::Path;
use crate::policy::split::Paging;

/// What the memory of a huge block must contain.
#[derive(Clone, Copy)]
pub(crate) enum RunContents {
    /// Any contents.
    Any,
    /// Zeros. Present memory must be cleared first, which touches all of it, so only a best-fit run is reused.
    Zeros,
    /// No pages at all: `mremap` moves pages in, and would drop present pages.
    None,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether the two lists serve each other's requests.
    fn shares_runs(&self) -> bool {
        self.paging(Paging::shares_runs)
    }

    /// Takes a cached run for a huge block: the best fit, else other present memory. Lock held.
    pub(crate) fn take_reusable_run(
        &self,
        run: u32,
        align_superslabs: u32,
        bytes: u64,
        contents: RunContents,
    ) -> Option<u32> {
        let fits_well = || self.take_best_fit(bytes, align_superslabs);
        match contents {
            RunContents::Any => fits_well().or_else(|| self.take_present_run(run, align_superslabs, bytes)),
            RunContents::Zeros => fits_well(),
            RunContents::None => None,
        }
    }

    fn take_present_run(&self, run: u32, align_superslabs: u32, bytes: u64) -> Option<u32> {
        let pool = self.mem.pool();
        if (pool.idle.count.get(), pool.huge_idle.count.get()) == (0, 0) || !self.shares_runs() {
            return None;
        }
        let idle = if run == 1 { self.take_idle(align_superslabs) } else { None };
        let ordinal = idle
            .or_else(|| self.split_cached(run, align_superslabs))
            .or_else(|| self.extend_cached(run, align_superslabs))?;
        let entry = self.mem.entry(ordinal);
        entry.set_usage(Use::Huge);
        entry.run.set(run);
        entry.bytes.set(bytes);
        entry.zeroed.set(false);
        Some(ordinal)
    }

    /// Takes the most recent idle SuperSlab, unless it was purged or has small pages.
    fn take_idle(&self, align_superslabs: u32) -> Option<u32> {
        let idle = &self.mem.pool().idle;
        let ordinal = idle.head.get().checked_sub(1)?;
        let entry = self.mem.entry(ordinal);
        let is_present = entry.usage() == Use::Idle && !entry.clean.get();
        if !is_present || entry.pages() == Pages::Small || !ordinal.is_multiple_of(align_superslabs) {
            return None;
        }
        self.unlink(idle, ordinal);
        Some(ordinal)
    }

    /// Splits `run` SuperSlabs off the oldest cached run that is long enough. Lock held.
    pub(crate) fn split_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        let fits = |ordinal: &u32| {
            self.mem.path(Path::CachedRunExamined, 1);
            self.mem.entry(*ordinal).run.get() >= run && ordinal.is_multiple_of(align_superslabs)
        };
        let huge_idle = &self.mem.pool().huge_idle;
        if huge_idle.count.get() == 0 || !self.shares_runs() {
            return None;
        }
        let ordinal = self.listed_from_the_oldest(huge_idle).find(fits)?;
        self.split_run(ordinal, run);
        Some(ordinal)
    }

    /// Extends and takes the most recent cached run that is at most a quarter too short and is followed by free
    /// SuperSlabs.
    fn extend_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        let lacks_little = |ordinal: &u32| {
            self.mem.path(Path::CachedRunExamined, 1);
            let has = self.mem.entry(*ordinal).run.get();
            has < run && run - has <= run / 4 && ordinal.is_multiple_of(align_superslabs)
        };
        let mut candidates = self.listed(&self.mem.pool().huge_idle).filter(lacks_little);
        let ordinal = candidates.find(|&ordinal| self.extend_run(ordinal, run))?;
        self.unlink_cached(ordinal);
        Some(ordinal)
    }

    /// Whether a cached run of at least `count` SuperSlabs starts at `ordinal`.
    pub(crate) fn is_cached_run(&self, ordinal: u32, count: u32) -> bool {
        let is_freed = || {
            ordinal < self.mem.pool().high_water.get()
                && self.mem.entry(ordinal).usage() == Use::HugeIdle
                && self.mem.entry(ordinal).run.get() >= count
        };
        is_freed() && self.shares_runs()
    }

    /// Takes the first `count` SuperSlabs of a cached run. Their contents are unknown. Lock held.
    pub(crate) fn split_run(&self, ordinal: u32, count: u32) {
        let entry = self.mem.entry(ordinal);
        if entry.run.get() == count {
            return self.unlink_cached(ordinal);
        }
        let pool = self.mem.pool();
        let taken_bytes = u64::from(count) << self.geometry.superslab_shift();
        let rest = self.mem.entry(ordinal + count);
        rest.set_usage(Use::HugeIdle);
        rest.run.set(entry.run.get() - count);
        rest.bytes.set(entry.bytes.get() - taken_bytes);
        rest.since_ns.set(entry.since_ns.get());
        rest.zeroed.set(false);
        pool.huge_idle_bytes.set(pool.huge_idle_bytes.get() - taken_bytes);
        self.replace_in_list(&pool.huge_idle, ordinal, ordinal + count);
    }

    /// Removes a run from the list of cached runs.
    pub(crate) fn unlink_cached(&self, ordinal: u32) {
        self.mem.path(Path::CachedRunTaken, 1);
        let pool = self.mem.pool();
        self.unlink(&pool.huge_idle, ordinal);
        pool.huge_idle_bytes.set(pool.huge_idle_bytes.get() - self.mem.entry(ordinal).bytes.get());
    }

    /// Replaces one entry of a list by another.
    fn replace_in_list(&self, list: &EntryList, old: u32, new: u32) {
        let (prev, next) = (self.mem.entry(old).prev.get(), self.mem.entry(old).next.get());
        self.mem.entry(new).prev.set(prev);
        self.mem.entry(new).next.set(next);
        match prev.checked_sub(1) {
            Some(prev) => self.mem.entry(prev).next.set(new + 1),
            None => list.head.set(new + 1),
        }
        match next.checked_sub(1) {
            Some(next) => self.mem.entry(next).prev.set(new + 1),
            None => list.tail.set(new + 1),
        }
    }
}

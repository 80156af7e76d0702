//! Memory that is present and unused serves whoever asks first.
//!
//! The pool keeps empty SuperSlabs and the runs of freed huge blocks apart, since each serves its own kind best. Where its own has
//! nothing, a request takes from the other before it takes memory that must be made present: a SuperSlab, or a shorter run, is cut off a
//! freed run; a huge block of one SuperSlab gets an empty one. What is left of a run stays where it was in the order of purges.
//! A buffer that is used again and again may so find its run a little shorter: then the run is lengthened, which costs no more
//! than was taken.
//!
//! Only where what changes hands is used as a whole, and needs nothing else done to it: where a SuperSlab is one huge page. (In larger
//! SuperSlabs, or with small pages, some that the new owner does not need would stay present; smaller SuperSlabs would split huge pages.
//! `MADV_COLLAPSE` comes when a SuperSlab is full, so that its pages are small ones until then.)

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::Memory;
use crate::meta::{EntryList, Pages, Use};
use crate::vocabulary::{Align, Huge, Prefault};

/// What a huge block needs beside its address.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// Memory, whatever it holds.
    Memory,
    /// Zeros. Present memory has to be written first, all of it: only a run of the block's own size is taken nevertheless.
    Zeros,
    /// Nothing: its pages come from elsewhere, and present ones would be lost.
    Space,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    fn lends(&self) -> bool {
        let has_huge_pages = match self.policy.huge {
            Huge::Thp | Huge::System | Huge::Hugetlb | Huge::HugetlbPlain => true,
            Huge::Never | Huge::Collapse => false,
        };
        has_huge_pages
            && self.policy.huge_page_bytes == 1 << self.geometry.superslab_shift()
            && self.policy.align == Align::Arena
            && self.policy.prefault == Prefault::Off
    }

    /// A run for a huge block out of what the pool keeps: a freed one that fits well, else other present memory. Lock held.
    pub(crate) fn take_kept_run(&self, run: u32, align_superslabs: u32, bytes: u64, wanted: Wanted) -> Option<u32> {
        let fits_well = || self.take_cached(bytes, align_superslabs);
        match wanted {
            Wanted::Memory => fits_well().or_else(|| self.take_present_run(run, align_superslabs, bytes)),
            Wanted::Zeros => fits_well(),
            Wanted::Space => None,
        }
    }

    fn take_present_run(&self, run: u32, align_superslabs: u32, bytes: u64) -> Option<u32> {
        if !self.lends() {
            return None;
        }
        let idle = if run == 1 { self.take_idle(align_superslabs) } else { None };
        let ordinal = idle
            .or_else(|| self.cut_cached(run, align_superslabs))
            .or_else(|| self.lengthen_cached(run, align_superslabs))?;
        let entry = self.mem.entry(ordinal);
        entry.set_usage(Use::Huge);
        entry.run.set(run);
        entry.bytes.set(bytes);
        entry.zeroed.set(false);
        Some(ordinal)
    }

    /// The SuperSlab that became empty last, unless it was purged since, or is no huge page.
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

    /// Cuts SuperSlabs off the front of the freed run that is to be purged first, of those that have as many. Lock held.
    pub(crate) fn cut_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        if !self.lends() {
            return None;
        }
        let fits =
            |ordinal: &u32| self.mem.entry(*ordinal).run.get() >= run && ordinal.is_multiple_of(align_superslabs);
        let ordinal = self.listed_from_the_oldest(&self.mem.pool().huge_idle).find(fits)?;
        self.take_front(ordinal, run);
        Some(ordinal)
    }

    /// Lengthens the run that was freed last, of those that lack at most a quarter and have free SuperSlabs behind them.
    fn lengthen_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        let lacks_little = |ordinal: &u32| {
            let has = self.mem.entry(*ordinal).run.get();
            has < run && run - has <= run / 4 && ordinal.is_multiple_of(align_superslabs)
        };
        let mut candidates = self.listed(&self.mem.pool().huge_idle).filter(lacks_little);
        let ordinal = candidates.find(|&ordinal| self.lengthen(ordinal, run))?;
        self.unlink_cached(ordinal);
        Some(ordinal)
    }

    /// Whether a freed run with as many SuperSlabs begins there.
    pub(crate) fn lends_from(&self, ordinal: u32, count: u32) -> bool {
        let is_freed = || {
            ordinal < self.mem.pool().high_water.get()
                && self.mem.entry(ordinal).usage() == Use::HugeIdle
                && self.mem.entry(ordinal).run.get() >= count
        };
        self.lends() && is_freed()
    }

    /// Takes the first SuperSlabs of a freed run. What they hold is unknown. Lock held.
    pub(crate) fn take_front(&self, ordinal: u32, count: u32) {
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
        self.put_in_place(&pool.huge_idle, ordinal, ordinal + count);
    }

    /// Takes a freed run out of the list.
    pub(crate) fn unlink_cached(&self, ordinal: u32) {
        let pool = self.mem.pool();
        self.unlink(&pool.huge_idle, ordinal);
        pool.huge_idle_bytes.set(pool.huge_idle_bytes.get() - self.mem.entry(ordinal).bytes.get());
    }

    /// Puts one entry in another's place in a list.
    fn put_in_place(&self, list: &EntryList, old: u32, new: u32) {
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

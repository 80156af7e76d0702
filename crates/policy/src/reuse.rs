//! Memory that is present and unused serves whoever asks first.
//!
//! The pool keeps empty SuperSlabs and the runs of freed huge blocks apart, since each serves its own kind best. Where its own has
//! nothing, a request takes from the other before it takes memory that must be made present: a SuperSlab, or a shorter run, is cut off a
//! freed run; a huge block of one SuperSlab gets an empty one. What is left of a run stays where it was in the order of purges.
//!
//! Only where what changes hands is used as a whole, and needs nothing else done to it: with huge pages, and SuperSlabs no larger than
//! one; reserved huge pages are not split. (With small pages, or in larger SuperSlabs, pages that the new owner does not need would stay
//! present. `MADV_COLLAPSE` comes when a SuperSlab is full, so that its pages are small ones until then.)

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::limits::HUGE_PAGE_BYTES;
use crate::memory::Memory;
use crate::meta::{EntryList, Use};
use crate::options::{Align, Huge, Prefault};

impl<M: Memory, G: Geometry> Allocator<M, G> {
    fn lends(&self) -> bool {
        let superslab_bytes = 1 << self.geometry.superslab_shift();
        let as_a_whole = match self.options.huge {
            Huge::Thp | Huge::Always => superslab_bytes <= HUGE_PAGE_BYTES,
            Huge::Hugetlb(_) => superslab_bytes == HUGE_PAGE_BYTES,
            Huge::Never | Huge::Collapse => false,
        };
        as_a_whole && self.options.align == Align::Arena && self.options.prefault == Prefault::Off
    }

    /// A run of SuperSlabs for a huge block of so many bytes, none of the freed ones being of about its size. Lock held.
    pub(crate) fn take_present_run(&self, run: u32, align_superslabs: u32, bytes: u64) -> Option<u32> {
        let idle = if run == 1 { self.take_idle(align_superslabs) } else { None };
        let ordinal = idle.or_else(|| self.cut_cached(run, align_superslabs))?;
        let entry = self.mem.entry(ordinal);
        entry.set_usage(Use::Huge);
        entry.run.set(run);
        entry.bytes.set(bytes);
        entry.zeroed.set(false);
        Some(ordinal)
    }

    /// The SuperSlab that became empty last, unless it was purged since.
    fn take_idle(&self, align_superslabs: u32) -> Option<u32> {
        let idle = &self.mem.pool().idle;
        let ordinal = idle.head.get().checked_sub(1)?;
        let entry = self.mem.entry(ordinal);
        let is_present = entry.usage() == Use::Idle && !entry.clean.get();
        if !self.lends() || !is_present || !ordinal.is_multiple_of(align_superslabs) {
            return None;
        }
        self.unlink(idle, ordinal);
        Some(ordinal)
    }

    /// Cuts SuperSlabs off the front of the freed run that is to be purged first, of those that have as many. They hold anything. Lock
    /// held.
    pub(crate) fn cut_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        if !self.lends() {
            return None;
        }
        let pool = self.mem.pool();
        let ordinal = self.oldest_cached(run, align_superslabs)?;
        let entry = self.mem.entry(ordinal);
        let cut_bytes = entry.bytes.get().min(u64::from(run) << self.geometry.superslab_shift());
        pool.huge_idle_bytes.set(pool.huge_idle_bytes.get() - cut_bytes);
        if entry.run.get() == run {
            self.unlink(&pool.huge_idle, ordinal);
            return Some(ordinal);
        }
        let rest = self.mem.entry(ordinal + run);
        rest.set_usage(Use::HugeIdle);
        rest.run.set(entry.run.get() - run);
        rest.bytes.set(entry.bytes.get() - cut_bytes);
        rest.since_ns.set(entry.since_ns.get());
        rest.zeroed.set(false);
        self.put_in_place(&pool.huge_idle, ordinal, ordinal + run);
        Some(ordinal)
    }

    /// The freed run that is to be purged first, of those that have as many SuperSlabs.
    fn oldest_cached(&self, run: u32, align_superslabs: u32) -> Option<u32> {
        let mut next = self.mem.pool().huge_idle.tail.get();
        while let Some(ordinal) = next.checked_sub(1) {
            let entry = self.mem.entry(ordinal);
            if entry.run.get() >= run && ordinal.is_multiple_of(align_superslabs) {
                return Some(ordinal);
            }
            next = entry.prev.get();
        }
        None
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

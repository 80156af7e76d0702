//! SuperSlabs with separate mappings: the kernel chooses the address, the policy ensures the alignment.
//!
//! Placement is decided by ordinals only, so it is the same in every backend, whatever addresses the kernel returns. A
//! run of SuperSlabs is one mapping; its parts can be used separately later.

use crate::allocator::Allocator;
use crate::arena::paging::Purged;
use crate::geometry::Geometry;
use crate::memory::{Mapping, Memory};
use crate::metadata::meta::{Pages, Part};
use crate::policy::vocabulary::{Align, Purge};

/// How SuperSlabs that are taken into use got their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// None: the kernel refused.
    Refused,
    /// Mapped memory that was not prefaulted.
    Mapped,
    /// A new mapping with `MAP_POPULATE`.
    Populated,
}

/// What a new separate mapping of SuperSlabs is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// A huge block: never prefaulted.
    HugeBlock,
    /// A SuperSlab for a heap.
    SuperSlab,
    /// A SuperSlab that is prefaulted whenever the policy prefaults at all.
    Prefaulted,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Whether a SuperSlab's address is a multiple of `superslabs` SuperSlabs.
    pub(crate) fn is_aligned(&self, ordinal: u32, superslabs: u32) -> bool {
        match self.placement.align {
            Align::Arena => ordinal.is_multiple_of(superslabs),
            Align::Trim | Align::Kernel => self.mem.address_of(ordinal).is_multiple_of(self.bytes_of(superslabs)),
        }
    }

    /// Whether these SuperSlabs directly follow the one before them in memory.
    pub(crate) fn continues(&self, first: u32, count: u32) -> bool {
        let is_later = |ordinal| self.part(ordinal) == Part::Later;
        self.placement.align == Align::Arena || (first..first.saturating_add(count)).all(is_later)
    }

    /// Provides memory for SuperSlabs that are taken into use, aligned to `align` SuperSlabs. If they need a new
    /// separate mapping, it is created for `fresh`. Requests the page size `pages`, unless this size was requested
    /// last. Lock held.
    #[must_use]
    pub(crate) fn back(&self, first: u32, count: u32, align: u32, fresh: Fresh, pages: Pages) -> Backing {
        let backed = self.back_with_memory(first, count, align, fresh, pages);
        if backed != Backing::Refused {
            self.ask_for(pages, first, count);
        }
        backed
    }

    fn back_with_memory(&self, first: u32, count: u32, align: u32, fresh: Fresh, pages: Pages) -> Backing {
        if self.placement.align == Align::Arena {
            return if self.back_with_huge_pages(first, count) { Backing::Mapped } else { Backing::Refused };
        }
        let lies_on_one_map = self.part(first) != Part::Unmapped && self.continues(first + 1, count - 1);
        if lies_on_one_map && self.is_aligned(first, align) {
            return Backing::Mapped;
        }
        if !self.unmap_own(first, count) {
            return Backing::Refused;
        }
        let mapping = match fresh {
            Fresh::HugeBlock => Mapping::Plain,
            Fresh::SuperSlab => self.paging(|paging, _| paging.superslab_mapping()),
            Fresh::Prefaulted => self.paging(|paging, _| paging.prefaulted_mapping()),
        };
        let Some(address) = self.map_aligned(self.bytes_of(count), self.bytes_of(align), mapping) else {
            return Backing::Refused;
        };
        self.mem.bind(first, count, address);
        for ordinal in first..first + count {
            let entry = self.mem.entry(ordinal);
            entry.set_part(if ordinal == first { Part::First } else { Part::Later });
            entry.prepared.set(true);
            entry.set_pages(pages);
        }
        let range = self.run_range(first, self.bytes_of(count));
        self.perform(|paging, ops| paging.advise(ops, range, pages));
        if mapping == Mapping::Populated { Backing::Populated } else { Backing::Mapped }
    }

    /// Maps memory at a multiple of `align`; returns its address. Trims it if the kernel did not align it.
    fn map_aligned(&self, bytes: u64, align: u64, mapping: Mapping) -> Option<u64> {
        if self.placement.align == Align::Kernel {
            let address = self.perform(|_, ops| ops.map_anywhere(bytes, mapping)).ok()?;
            if address.is_multiple_of(align) {
                return Some(address);
            }
            let pool = self.mem.pool();
            pool.fallbacks_to_trim.set(pool.fallbacks_to_trim.get() + 1);
            self.trim(address, bytes);
        }
        let oversized_bytes = bytes.checked_add(align)?;
        let address = self.perform(|_, ops| ops.map_anywhere(oversized_bytes, mapping)).ok()?;
        let start = address.next_multiple_of(align);
        self.trim(address, start - address);
        self.trim(start + bytes, address + align - start);
        Some(start)
    }

    /// Unmaps the excess of a mapping. If the kernel refuses (too many mappings), the excess stays mapped and is lost.
    fn trim(&self, address: u64, bytes: u64) {
        if bytes > 0 {
            let _ = self.perform(|_, ops| ops.unmap_at(address, bytes));
        }
    }

    /// Purges whole SuperSlabs as the policy requires.
    pub(crate) fn purge_superslabs(&self, first: u32, count: u32) -> Purged {
        if self.placement.align == Align::Arena || self.paging(|paging, _| paging.purge != Purge::Unmap) {
            return self.purge(self.run_range(first, self.bytes_of(count)));
        }
        // The mapping itself is removed; the next use creates another one.
        if self.unmap_own(first, count) { Purged::Zero } else { Purged::Unknown }
    }

    /// Unmaps the memory of SuperSlabs. False if the kernel refuses; the remaining SuperSlabs are then unchanged.
    pub(crate) fn unmap_own(&self, first: u32, count: u32) -> bool {
        let end = first + count;
        let mut from = first;
        while from < end {
            let mut to = from + 1;
            if self.part(from) != Part::Unmapped {
                while to < end && self.part(to) == Part::Later {
                    to += 1;
                }
                let (address, bytes) = (self.mem.address_of(from), self.bytes_of(to - from));
                if self.perform(|_, ops| ops.unmap_at(address, bytes)).is_err() {
                    return false;
                }
                self.unbind(from, to - from);
            }
            from = to;
        }
        true
    }

    /// Records that SuperSlabs have no mapping any more; their next use creates one.
    pub(crate) fn unbind(&self, first: u32, count: u32) {
        self.mem.unbind(first, count);
        for ordinal in first..first + count {
            let entry = self.mem.entry(ordinal);
            entry.set_part(Part::Unmapped);
            entry.prepared.set(false);
            entry.clean.set(true);
            entry.zeroed.set(true);
        }
        if self.part(first + count) == Part::Later {
            self.mem.entry(first + count).set_part(Part::First);
        }
    }

    /// Whether a SuperSlab has a separate mapping.
    pub(crate) fn is_bound(&self, ordinal: u32) -> bool {
        self.part(ordinal) != Part::Unmapped
    }

    fn part(&self, ordinal: u32) -> Part {
        if ordinal < self.mem.pool().high_water.get() { self.mem.entry(ordinal).part() } else { Part::Unmapped }
    }

    fn bytes_of(&self, superslabs: u32) -> u64 {
        u64::from(superslabs) << self.geometry.superslab_shift()
    }
}

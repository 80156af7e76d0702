//! SuperSlabs on maps of their own: the kernel chooses where, the policy sees to the alignment.
//!
//! A SuperSlab's ordinal stays its name, and what is placed where is decided by ordinals alone, so that both worlds name
//! alike whatever the kernel answers. A run of SuperSlabs lies on one map; its parts can be used alone afterwards.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::{Mapping, Memory};
use crate::meta::{Pages, Part};
use crate::os::Purged;
use crate::vocabulary::{Align, Prefault, Purge};

/// What SuperSlabs that are taken into use lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backed {
    /// Nothing: the kernel refused.
    Refused,
    /// Mapped memory, prefaulted by nobody.
    Mapped,
    /// A map that was populated as it was made.
    Populated,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// How a SuperSlab that is prefaulted is mapped where it has a map of its own.
    pub(crate) fn fresh_mapping(&self) -> Mapping {
        if self.policy.prefault == Prefault::Populate { Mapping::Populated } else { Mapping::Plain }
    }

    /// Whether a SuperSlab lies at a multiple of so many SuperSlabs.
    pub(crate) fn is_aligned(&self, ordinal: u32, superslabs: u32) -> bool {
        match self.policy.align {
            Align::Arena => ordinal.is_multiple_of(superslabs),
            Align::Trim | Align::Kernel => self.mem.address_of(ordinal).is_multiple_of(self.bytes_of(superslabs)),
        }
    }

    /// Whether these SuperSlabs can only lie right behind the one before them.
    pub(crate) fn continues(&self, first: u32, count: u32) -> bool {
        let is_later = |ordinal| self.part(ordinal) == Part::Later;
        self.policy.align == Align::Arena || (first..first.saturating_add(count)).all(is_later)
    }

    /// Puts memory under SuperSlabs that are taken into use, aligned to `align` SuperSlabs. Lock held. Where they have maps
    /// of their own and get a new one, it is mapped as `fresh`. Asks for `pages`, unless that was the last that was asked for.
    #[must_use]
    pub(crate) fn back(&self, first: u32, count: u32, align: u32, fresh: Mapping, pages: Pages) -> Backed {
        let backed = self.back_with_memory(first, count, align, fresh, pages);
        if backed != Backed::Refused {
            self.ask_for(pages, first, count);
        }
        backed
    }

    fn back_with_memory(&self, first: u32, count: u32, align: u32, fresh: Mapping, pages: Pages) -> Backed {
        if self.policy.align == Align::Arena {
            return if self.back_with_huge_pages(first, count) { Backed::Mapped } else { Backed::Refused };
        }
        let lies_on_one_map = self.part(first) != Part::Unmapped && self.continues(first + 1, count - 1);
        if lies_on_one_map && self.is_aligned(first, align) {
            return Backed::Mapped;
        }
        if !self.unmap_own(first, count) {
            return Backed::Refused;
        }
        let Some(address) = self.map_aligned(self.bytes_of(count), self.bytes_of(align), fresh) else {
            return Backed::Refused;
        };
        self.mem.bind(first, count, address);
        for ordinal in first..first + count {
            let entry = self.mem.entry(ordinal);
            entry.set_part(if ordinal == first { Part::First } else { Part::Later });
            entry.prepared.set(true);
            entry.set_pages(pages);
        }
        self.advise_pages(self.run_range(first, self.bytes_of(count)), pages);
        if fresh == Mapping::Populated { Backed::Populated } else { Backed::Mapped }
    }

    /// Maps memory at a multiple of `align`, which the kernel does or does not see to. Returns its address.
    fn map_aligned(&self, bytes: u64, align: u64, mapping: Mapping) -> Option<u64> {
        if self.policy.align == Align::Kernel {
            let address = self.mem.map_anywhere(bytes, mapping).ok()?;
            if address.is_multiple_of(align) {
                return Some(address);
            }
            let pool = self.mem.pool();
            pool.fell_back_trim.set(pool.fell_back_trim.get() + 1);
            self.trim(address, bytes);
        }
        let address = self.mem.map_anywhere(bytes.checked_add(align)?, mapping).ok()?;
        let start = address.next_multiple_of(align);
        self.trim(address, start - address);
        self.trim(start + bytes, address + align - start);
        Some(start)
    }

    /// Unmaps what was mapped too much. Where the kernel refuses that (it has too many maps) it stays, and is lost.
    fn trim(&self, address: u64, bytes: u64) {
        if bytes > 0 {
            let _ = self.mem.unmap_at(address, bytes);
        }
    }

    /// Gives the memory of whole SuperSlabs back as the policy says; each lies on one map.
    pub(crate) fn purge_superslabs(&self, first: u32, count: u32) -> Purged {
        if self.policy.align == Align::Arena || self.policy.purge != Purge::Unmap {
            return self.purge(self.run_range(first, self.bytes_of(count)));
        }
        // The map itself is given up, and the next use makes another one.
        if self.unmap_own(first, count) { Purged::Zero } else { Purged::Unknown }
    }

    /// Unmaps what SuperSlabs lie on. False where the kernel refuses: the others are as they were.
    pub(crate) fn unmap_own(&self, first: u32, count: u32) -> bool {
        let end = first + count;
        let mut from = first;
        while from < end {
            let mut to = from + 1;
            if self.part(from) != Part::Unmapped {
                while to < end && self.part(to) == Part::Later {
                    to += 1;
                }
                if self.mem.unmap_at(self.mem.address_of(from), self.bytes_of(to - from)).is_err() {
                    return false;
                }
                self.unbind(from, to - from);
            }
            from = to;
        }
        true
    }

    /// Notes that SuperSlabs lie nowhere any more; their next use makes a map.
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

    /// Whether a SuperSlab lies on a map of its own.
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

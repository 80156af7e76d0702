//! The page operations of a paging policy and their order, the same in every backend.
//!
//! The only order that neither loses the huge page nor installs a page twice is: map, `MADV_HUGEPAGE`,
//! `MADV_POPULATE_WRITE`, first metadata write (measured, see docs). `Prefault::Populate` deliberately uses the wrong
//! order, because real programs use it.
//!
//! Everything here is best effort, like the system calls, unless it returns a result: missing pages fault in later.

use crate::limits::HUGE_PAGE_BYTES;
use crate::memory::{Advice, ArenaRange, Mapping, PageOps};
use crate::metadata::meta::Pages;
use crate::policy::split::Paging;
use crate::policy::vocabulary::{Align, Huge, Prefault, PrefaultScope, Purge};

/// The state of a range after a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purged {
    /// It reads as zeros.
    Zero,
    /// It may read as anything.
    Unknown,
    /// It is unmapped: the kernel refused to map it again.
    Hole,
}

/// What a range that was to get pages of the hugetlb pool got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugetlbMapping {
    /// Pages of the pool.
    Pool,
    /// The pool was empty: small pages, with advice to use transparent huge pages.
    Thp,
    /// The pool was empty: small pages.
    Small,
    /// Nothing: the kernel left a hole.
    Hole,
}

impl Paging {
    /// Makes the `madvise` call for a page size, if the policy requests huge pages. A kernel without transparent huge
    /// pages refuses the call, and a replay measures the result.
    pub(crate) fn advise(&self, ops: &dyn PageOps, range: ArenaRange, pages: Pages) {
        if self.huge != Huge::Thp {
            return;
        }
        let advice = match pages {
            Pages::Huge => Advice::HugePage,
            Pages::Small => Advice::NoHugePage,
        };
        let _ = ops.advise(range, advice);
    }

    /// How a SuperSlab with a separate mapping is mapped, if it is prefaulted.
    pub(crate) fn prefaulted_mapping(&self) -> Mapping {
        if self.prefault == Prefault::Populate { Mapping::Populated } else { Mapping::Plain }
    }

    /// How a SuperSlab that is taken into use is mapped, if it has a separate mapping.
    pub(crate) fn superslab_mapping(&self) -> Mapping {
        match self.prefault_scope {
            PrefaultScope::SuperSlab => self.prefaulted_mapping(),
            PrefaultScope::Slab | PrefaultScope::Init => Mapping::Plain,
        }
    }

    /// Prefaults a range, if that is to happen at the time `at`.
    pub(crate) fn prefault_at(&self, ops: &dyn PageOps, range: ArenaRange, at: PrefaultScope) {
        if self.prefault_scope == at {
            self.prefault(ops, range);
        }
    }

    /// Prefaults a range.
    pub(crate) fn prefault(&self, ops: &dyn PageOps, range: ArenaRange) {
        match self.prefault {
            Prefault::Off => {}
            // With hugetlb, the mapping itself is already populated.
            Prefault::Populate if self.huge.is_hugetlb() => {}
            Prefault::Populate => {
                let _ = ops.map(range, Mapping::Populated);
                self.advise(ops, range, Pages::Huge);
            }
            Prefault::PopulateWrite => _ = ops.advise(range, Advice::PopulateWrite),
            Prefault::PopulateRead => _ = ops.advise(range, Advice::PopulateRead),
            Prefault::Touch => ops.touch_pages(range),
            Prefault::Memset => ops.fill_pages(range),
        }
    }

    /// With `Huge::Collapse`, collapses a SuperSlab whose last slice was taken. A SuperSlab smaller than a huge page is
    /// collapsed together with the other SuperSlabs of the same huge page.
    pub(crate) fn collapse(&self, ops: &dyn PageOps, superslab: ArenaRange, align: Align) {
        if self.huge == Huge::Collapse {
            let range = match align {
                Align::Arena => whole_huge_pages(superslab),
                // The neighbouring memory may not belong to the allocator.
                Align::Trim | Align::Kernel => superslab,
            };
            let _ = ops.advise(range, Advice::Collapse);
        }
    }

    /// Maps pages of the hugetlb pool, or falls back as the policy requires.
    pub(crate) fn map_hugetlb(&self, ops: &dyn PageOps, range: ArenaRange) -> HugetlbMapping {
        let mapping = match self.prefault {
            Prefault::Populate => Mapping::HugetlbPopulated,
            _ => Mapping::Hugetlb,
        };
        if ops.map(range, mapping).is_ok() {
            return HugetlbMapping::Pool;
        }
        // A failed MAP_FIXED may have removed the old mapping.
        if ops.map(range, Mapping::Plain).is_err() {
            return HugetlbMapping::Hole;
        }
        let has_thp = self.huge == Huge::Hugetlb && ops.advise(range, Advice::HugePage).is_ok();
        if has_thp { HugetlbMapping::Thp } else { HugetlbMapping::Small }
    }

    /// Returns a range's memory to the kernel as the policy requires. `pages` is the page size last requested for it.
    pub(crate) fn purge(&self, ops: &dyn PageOps, range: ArenaRange, align: Align, pages: Pages) -> Purged {
        match self.purge {
            Purge::None => Purged::Unknown,
            Purge::DontNeed if ops.advise(range, Advice::DontNeed).is_ok() && self.purges_whole(range) => Purged::Zero,
            Purge::DontNeed => Purged::Unknown,
            Purge::Free => {
                let _ = ops.advise(range, Advice::Free);
                Purged::Unknown
            }
            // In the arena, the addresses are unmapped and reserved again. For part of a separate mapping, a single
            // `mmap` does both: between two calls, another thread's `mmap` could take the hole.
            Purge::Unmap if align == Align::Arena && ops.unmap(range).is_err() => Purged::Unknown,
            Purge::Unmap if self.map_again(ops, range, pages) => Purged::Zero,
            Purge::Unmap => Purged::Hole,
        }
    }

    /// Whether a purge drops the whole range: `MADV_DONTNEED` on hugetlb silently rounds its length down (kernel rule
    /// R13f).
    fn purges_whole(&self, range: ArenaRange) -> bool {
        !self.huge.is_hugetlb() || whole_huge_pages(range) == range
    }

    /// Maps a hole in the arena again, as it was mapped originally. False if it stays a hole. `pages` is the page size
    /// last requested for the range.
    #[must_use]
    pub(crate) fn map_again(&self, ops: &dyn PageOps, range: ArenaRange, pages: Pages) -> bool {
        let is_hugetlb = self.huge.is_hugetlb() && whole_huge_pages(range) == range;
        if is_hugetlb && ops.map(range, Mapping::Hugetlb).is_ok() {
            return true;
        }
        let mapped = ops.map(range, Mapping::Plain).is_ok();
        self.advise(ops, range, pages);
        mapped
    }
}

/// The range, extended to whole huge pages.
fn whole_huge_pages(range: ArenaRange) -> ArenaRange {
    let start = range.start - range.start % HUGE_PAGE_BYTES;
    let end = (range.start + range.bytes).next_multiple_of(HUGE_PAGE_BYTES);
    ArenaRange { start, bytes: end - start }
}

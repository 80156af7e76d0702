//! The policy's system calls and their order, the same in every backend.
//!
//! The only order that neither loses the huge page nor installs a page twice is: map, `MADV_HUGEPAGE`,
//! `MADV_POPULATE_WRITE`, first metadata write (measured, see docs). `Prefault::Populate` deliberately uses the wrong
//! order, because real programs use it.

use crate::allocator::{Allocator, Span};
use crate::arena::layout::Layout;
use crate::arena::mapping::Backing;
use crate::arena::run_cache::RunContents;
use crate::geometry::Geometry;
use crate::limits::HUGE_PAGE_BYTES;
use crate::memory::{Advice, ArenaRange, Mapping, Memory};
use crate::metadata::meta::{Pages, Use};
use crate::policy::Policy;
use crate::policy::process::ProcessConfig;
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

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Creates an allocator on a fresh reservation: advises the kernel about the arena's page size, touches the
    /// start-up bytes and prewarms SuperSlabs. `geometry` and `layout` must be those of the policy.
    pub fn new(mem: M, geometry: G, policy: Policy, layout: &Layout) -> Allocator<M, G> {
        let allocator = Allocator { mem, geometry, policy, process: ProcessConfig::default() };
        if layout.align == Align::Arena {
            allocator.advise_pages(ArenaRange { start: 0, bytes: layout.arena_bytes }, Pages::Huge);
        }
        if allocator.policy.startup_touch_bytes > 0 {
            allocator.touch_at_start();
        }
        allocator.prewarm();
        allocator
    }

    /// Sets the settings of the process. Call it before the first heap is opened.
    #[must_use]
    pub fn in_process(self, process: ProcessConfig) -> Allocator<M, G> {
        Allocator { process, ..self }
    }

    fn touch_at_start(&self) {
        let bytes = self.policy.startup_touch_bytes;
        if let Some(block) = self.allocate_huge(bytes, 1, RunContents::Any) {
            let ordinal = self.mem.ordinal(block.superslab);
            self.mem.touch_pages(self.run_range(ordinal, bytes.next_multiple_of(crate::limits::PAGE_BYTES)));
        }
    }

    fn prewarm(&self) {
        for _ in 0..self.policy.prewarm_superslabs {
            let guard = self.mem.lock();
            let Some(ordinal) = self.find_free_or_evict(1, 1) else { return };
            match self.back(ordinal, 1, 1, self.fresh_mapping(), Pages::Huge) {
                Backing::Refused => return self.free_unless_lost(ordinal, 1),
                Backing::Mapped => self.prefault(self.run_range(ordinal, 1 << self.geometry.superslab_shift())),
                Backing::Populated => {}
            }
            self.mem.entry(ordinal).clean.set(false);
            self.keep(ordinal, Use::Warm);
            drop(guard);
        }
    }

    /// Prefaults a clean SuperSlab that is taken into use.
    pub(crate) fn prefault_superslab(&self, range: ArenaRange) {
        if self.policy.prefault_scope == PrefaultScope::SuperSlab {
            self.prefault(range);
        }
    }

    /// Prefaults a span whose slices are clean.
    pub(crate) fn prefault_span(&self, span: Span<M>) {
        if self.policy.prefault_scope == PrefaultScope::Slab {
            self.prefault(self.span_range(span));
        }
    }

    /// Prefaults a range. Best effort, like the system calls: missing pages fault in later.
    fn prefault(&self, range: ArenaRange) {
        match self.policy.prefault {
            Prefault::Off => {}
            // With hugetlb, the mapping itself is already populated.
            Prefault::Populate if self.policy.huge.is_hugetlb() => {}
            Prefault::Populate => {
                let _ = self.mem.map(range, Mapping::Populated);
                self.advise_pages(range, Pages::Huge);
            }
            Prefault::PopulateWrite => _ = self.mem.advise(range, Advice::PopulateWrite),
            Prefault::PopulateRead => _ = self.mem.advise(range, Advice::PopulateRead),
            Prefault::Touch => self.mem.touch_pages(range),
            Prefault::Memset => self.mem.fill_pages(range),
        }
    }

    /// With `Huge::Collapse`, collapses a SuperSlab whose last slice was taken. A SuperSlab smaller than a huge page is
    /// collapsed together with the other SuperSlabs of the same huge page. Best effort, like all advice.
    pub(crate) fn collapse_filled(&self, superslab: M::SuperSlab) {
        if self.policy.huge != Huge::Collapse || self.mem.meta(superslab).collapsed.replace(true) {
            return;
        }
        let own = self.run_range(self.mem.ordinal(superslab), 1 << self.geometry.superslab_shift());
        let range = match self.policy.align {
            Align::Arena => whole_huge_pages(own),
            // The neighbouring memory may not belong to the allocator.
            Align::Trim | Align::Kernel => own,
        };
        let _ = self.mem.advise(range, Advice::Collapse);
    }

    /// If the policy uses hugetlb, maps pages of the pool for SuperSlabs that have none yet. Marks all of them
    /// prepared. False if the kernel left a hole; the SuperSlabs in the hole are then lost, and the others unchanged.
    /// Lock held.
    #[must_use]
    pub(crate) fn back_with_huge_pages(&self, first: u32, count: u32) -> bool {
        if self.policy.huge.is_hugetlb() {
            let group = self.superslabs_per_huge_page();
            let end = (first + count).next_multiple_of(group);
            let mut from = first - first % group;
            while from < end {
                let backed = self.is_backed(from, group);
                let mut to = from + group;
                while to < end && self.is_backed(to, group) == backed {
                    to += group;
                }
                if !backed {
                    let bytes = u64::from(to - from) << self.geometry.superslab_shift();
                    if !self.map_hugetlb(self.run_range(from, bytes), to - from) {
                        self.mark_lost(from, to - from);
                        return false;
                    }
                }
                from = to;
            }
        }
        for ordinal in first..first + count {
            self.mem.entry(ordinal).prepared.set(true);
        }
        true
    }

    /// SuperSlabs per huge page, at least 1.
    pub(crate) fn superslabs_per_huge_page(&self) -> u32 {
        ((HUGE_PAGE_BYTES >> self.geometry.superslab_shift()) as u32).max(1)
    }

    fn is_backed(&self, first: u32, group: u32) -> bool {
        let high = self.mem.pool().high_water.get();
        (first..(first + group).min(high)).any(|ordinal| self.mem.entry(ordinal).prepared.get())
    }

    /// Maps pages of the hugetlb pool, or falls back as the policy requires and counts the fallback. False if a hole is
    /// left.
    fn map_hugetlb(&self, range: ArenaRange, count: u32) -> bool {
        let mapping = match self.policy.prefault {
            Prefault::Populate => Mapping::HugetlbPopulated,
            _ => Mapping::Hugetlb,
        };
        if self.mem.map(range, mapping).is_ok() {
            return true;
        }
        // A failed MAP_FIXED may have removed the old mapping.
        if self.mem.map(range, Mapping::Plain).is_err() {
            return false;
        }
        let pool = self.mem.pool();
        match self.policy.huge {
            Huge::Hugetlb if self.mem.advise(range, Advice::HugePage).is_ok() => {
                pool.fallbacks_to_thp.set(pool.fallbacks_to_thp.get() + count);
            }
            _ => pool.fallbacks_to_4k.set(pool.fallbacks_to_4k.get() + count),
        }
        true
    }

    /// Returns a range's memory to the kernel as the policy requires.
    pub(crate) fn purge(&self, range: ArenaRange) -> Purged {
        let zero_if = |zero| if zero { Purged::Zero } else { Purged::Unknown };
        match self.policy.purge {
            Purge::None => Purged::Unknown,
            Purge::DontNeed => zero_if(self.mem.advise(range, Advice::DontNeed).is_ok() && self.purges_whole(range)),
            Purge::Free => {
                let _ = self.mem.advise(range, Advice::Free);
                Purged::Unknown
            }
            Purge::Unmap if self.policy.align != Align::Arena => self.replace(range),
            Purge::Unmap if self.mem.unmap(range).is_err() => Purged::Unknown,
            Purge::Unmap if self.map_again(range) => Purged::Zero,
            Purge::Unmap => Purged::Hole,
        }
    }

    /// [`Purge::Unmap`] for part of a separate mapping, with a single `mmap`. Between a `munmap` and an `mmap`, another
    /// thread's `mmap` could take the hole.
    fn replace(&self, range: ArenaRange) -> Purged {
        if self.map_again(range) { Purged::Zero } else { Purged::Hole }
    }

    /// Whether a purge drops the whole range: `MADV_DONTNEED` on hugetlb silently rounds its length down (kernel rule
    /// R13).
    fn purges_whole(&self, range: ArenaRange) -> bool {
        match self.policy.huge {
            Huge::Hugetlb | Huge::HugetlbPlain => whole_huge_pages(range) == range,
            Huge::Never | Huge::Thp | Huge::System | Huge::Collapse => true,
        }
    }

    /// Maps a hole in the arena again, as it was mapped originally. False if it stays a hole.
    #[must_use]
    pub(crate) fn map_again(&self, range: ArenaRange) -> bool {
        match self.policy.huge {
            Huge::Hugetlb | Huge::HugetlbPlain if whole_huge_pages(range) == range => {
                self.mem.map(range, Mapping::Hugetlb).is_ok() || self.mem.map(range, Mapping::Plain).is_ok()
            }
            Huge::Thp => {
                let mapped = self.mem.map(range, Mapping::Plain).is_ok();
                self.advise_pages(range, self.pages_of(range));
                mapped
            }
            Huge::Never | Huge::System | Huge::Collapse | Huge::Hugetlb | Huge::HugetlbPlain => {
                self.mem.map(range, Mapping::Plain).is_ok()
            }
        }
    }
}

/// The range, extended to whole huge pages.
fn whole_huge_pages(range: ArenaRange) -> ArenaRange {
    let start = range.start - range.start % HUGE_PAGE_BYTES;
    let end = (range.start + range.bytes).next_multiple_of(HUGE_PAGE_BYTES);
    ArenaRange { start, bytes: end - start }
}

//! When page operations are made: at start, when SuperSlabs and spans are taken into use, when they are filled or purged.
//! [`paging`](crate::arena::paging) decides which.

use crate::allocator::{Allocator, Span};
use crate::arena::layout::Layout;
use crate::arena::mapping::{Backing, Fresh};
use crate::arena::paging::{HugetlbMapping, Purged};
use crate::arena::run_cache::RunContents;
use crate::geometry::Geometry;
use crate::limits::HUGE_PAGE_BYTES;
use crate::memory::{ArenaRange, Memory, PageOps};
use crate::metadata::meta::{Pages, Use};
use crate::policy::Policy;
use crate::policy::split::Paging;
use crate::policy::vocabulary::{Align, PrefaultScope};

/// What SuperSlabs that were to get pages of the hugetlb pool got instead, in SuperSlabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HugetlbFallbacks {
    to_thp: u32,
    to_4k: u32,
    /// The first SuperSlab of a hole that the kernel left, and their number.
    lost: Option<(u32, u32)>,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Creates an allocator on a fresh reservation: advises the kernel about the arena's page size, touches the
    /// start-up bytes and prewarms SuperSlabs. `geometry` and `layout` must be those of the policy.
    pub fn new(mem: M, geometry: G, policy: Policy, layout: &Layout) -> Allocator<M, G> {
        let allocator = Allocator::on(mem, geometry, policy.split());
        if layout.align == Align::Arena {
            let arena = ArenaRange { start: 0, bytes: layout.arena_bytes };
            allocator.perform(|paging, ops| paging.advise(ops, arena, Pages::Huge));
        }
        if policy.startup_touch_bytes > 0 {
            allocator.touch_at_start();
        }
        allocator.prewarm();
        allocator
    }

    fn touch_at_start(&self) {
        let bytes = self.placement.startup_touch_bytes;
        if let Some(block) = self.allocate_huge(bytes, 1, RunContents::Any) {
            let ordinal = self.mem.ordinal(block.superslab);
            let range = self.run_range(ordinal, bytes.next_multiple_of(crate::limits::PAGE_BYTES));
            self.perform(|_, ops| ops.touch_pages(range));
        }
    }

    fn prewarm(&self) {
        for _ in 0..self.placement.prewarm_superslabs {
            let guard = self.mem.lock();
            let Some(ordinal) = self.find_free_or_evict(1, 1) else { return };
            match self.back(ordinal, 1, 1, Fresh::Prefaulted, Pages::Huge) {
                Backing::Refused => return self.free_unless_lost(ordinal, 1),
                Backing::Mapped => {
                    let range = self.run_range(ordinal, 1 << self.geometry.superslab_shift());
                    self.perform(|paging, ops| paging.prefault(ops, range));
                }
                Backing::Populated => {}
            }
            self.mem.entry(ordinal).clean.set(false);
            self.keep(ordinal, Use::Warm);
            drop(guard);
        }
    }

    /// Prefaults a clean SuperSlab that is taken into use.
    pub(crate) fn prefault_superslab(&self, range: ArenaRange) {
        self.perform(|paging, ops| paging.prefault_at(ops, range, PrefaultScope::SuperSlab));
    }

    /// Prefaults a span whose slices are clean.
    pub(crate) fn prefault_span(&self, span: Span<M>) {
        let range = self.span_range(span);
        self.perform(|paging, ops| paging.prefault_at(ops, range, PrefaultScope::Slab));
    }

    /// Collapses a SuperSlab whose last slice was taken, if the policy does so and unless it was done since the last
    /// purge.
    pub(crate) fn collapse_filled(&self, superslab: M::SuperSlab) {
        if self.mem.meta(superslab).collapsed.replace(true) {
            return;
        }
        let own = self.run_range(self.mem.ordinal(superslab), 1 << self.geometry.superslab_shift());
        self.perform(|paging, ops| paging.collapse(ops, own, self.placement.align));
    }

    /// If the policy uses hugetlb, maps pages of the pool for SuperSlabs that have none yet. Marks all of them
    /// prepared. False if the kernel left a hole; the SuperSlabs in the hole are then lost, and the others unchanged.
    /// Lock held.
    #[must_use]
    pub(crate) fn back_with_huge_pages(&self, first: u32, count: u32) -> bool {
        let fallbacks = self.perform(|paging, ops| self.map_unbacked(paging, ops, first, count));
        let pool = self.mem.pool();
        if (fallbacks.to_thp, fallbacks.to_4k) != (0, 0) {
            pool.fallbacks_to_thp.set(pool.fallbacks_to_thp.get() + fallbacks.to_thp);
            pool.fallbacks_to_4k.set(pool.fallbacks_to_4k.get() + fallbacks.to_4k);
        }
        if let Some((first, count)) = fallbacks.lost {
            self.mark_lost(first, count);
            return false;
        }
        for ordinal in first..first + count {
            self.mem.entry(ordinal).prepared.set(true);
        }
        true
    }

    /// Maps pages of the hugetlb pool for those SuperSlabs that have none, until the kernel leaves a hole.
    fn map_unbacked(&self, paging: &Paging, ops: &dyn PageOps, first: u32, count: u32) -> HugetlbFallbacks {
        let mut fallbacks = HugetlbFallbacks::default();
        if !paging.huge.is_hugetlb() {
            return fallbacks;
        }
        let group = ((HUGE_PAGE_BYTES >> self.geometry.superslab_shift()) as u32).max(1);
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
                match paging.map_hugetlb(ops, self.run_range(from, bytes)) {
                    HugetlbMapping::Pool => {}
                    HugetlbMapping::Thp => fallbacks.to_thp += to - from,
                    HugetlbMapping::Small => fallbacks.to_4k += to - from,
                    HugetlbMapping::Hole => {
                        fallbacks.lost = Some((from, to - from));
                        break;
                    }
                }
            }
            from = to;
        }
        fallbacks
    }

    fn is_backed(&self, first: u32, group: u32) -> bool {
        let high = self.mem.pool().high_water.get();
        (first..(first + group).min(high)).any(|ordinal| self.mem.entry(ordinal).prepared.get())
    }

    /// Returns a range's memory to the kernel as the policy requires.
    pub(crate) fn purge(&self, range: ArenaRange) -> Purged {
        let pages = self.pages_of(range);
        self.perform(|paging, ops| paging.purge(ops, range, self.placement.align, pages))
    }

    /// Maps a hole in the arena again, as it was mapped originally. False if it stays a hole.
    #[must_use]
    pub(crate) fn map_again(&self, range: ArenaRange) -> bool {
        let pages = self.pages_of(range);
        self.perform(|paging, ops| paging.map_again(ops, range, pages))
    }
}

//! What the policy asks of the operating system, in which order, in both worlds alike.
//!
//! The order map, `MADV_HUGEPAGE`, `MADV_POPULATE_WRITE`, first metadata write is the only one that neither loses
//! the huge page nor installs anything twice (measured, see docs). `Prefault::Populate` keeps the wrong one, since
//! people use it.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::limits::HUGE_PAGE_BYTES;
use crate::memory::{Advice, ArenaRange, Mapping, Memory};
use crate::meta::{Pages, Use};
use crate::placing::Backed;
use crate::policy::Policy;
use crate::process::ProcessConfig;
use crate::reuse::Wanted;
use crate::vocabulary::{Align, Huge, Prefault, PrefaultScope, Purge};

/// What a purge made of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purged {
    /// It reads as zeros.
    Zero,
    /// It may read as anything.
    Unknown,
    /// It cannot be touched any more: the kernel took it and refused to map it again.
    Hole,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Starts on a fresh reservation laid out as `layout` says: arena advice, start-up touch, prewarming. `geometry` is that
    /// of the policy.
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

    /// The same allocator in a process with other settings. Call it before the first heap is opened.
    #[must_use]
    pub fn in_process(self, process: ProcessConfig) -> Allocator<M, G> {
        Allocator { process, ..self }
    }

    fn touch_at_start(&self) {
        let bytes = self.policy.startup_touch_bytes;
        if let Some(block) = self.allocate_huge(bytes, 1, Wanted::Memory) {
            let ordinal = self.mem.ordinal(block.superslab);
            self.mem.touch_pages(self.run_range(ordinal, bytes.next_multiple_of(crate::limits::PAGE_BYTES)));
        }
    }

    fn prewarm(&self) {
        for _ in 0..self.policy.prewarm_superslabs {
            let guard = self.mem.lock();
            let Some(ordinal) = self.find_free_or_evict(1, 1) else { return };
            match self.back(ordinal, 1, 1, self.fresh_mapping(), Pages::Huge) {
                Backed::Refused => return self.free_unless_lost(ordinal, 1),
                Backed::Mapped => self.prefault(self.run_range(ordinal, 1 << self.geometry.superslab_shift())),
                Backed::Populated => {}
            }
            self.mem.entry(ordinal).clean.set(false);
            self.keep(ordinal, Use::Warm);
            drop(guard);
        }
    }

    /// Prefaults a SuperSlab that is taken into use clean.
    pub(crate) fn prefault_superslab(&self, range: ArenaRange) {
        if self.policy.prefault_scope == PrefaultScope::SuperSlab {
            self.prefault(range);
        }
    }

    /// Prefaults a span whose units are clean.
    pub(crate) fn prefault_span(&self, span: Span<M>) {
        if self.policy.prefault_scope == PrefaultScope::Slab {
            self.prefault(self.span_range(span));
        }
    }

    /// Prefaulting is best effort, as the calls themselves are: what it did not make present is touched later.
    fn prefault(&self, range: ArenaRange) {
        match self.policy.prefault {
            Prefault::Off => {}
            // With hugetlb the map itself was populated.
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

    /// A SuperSlab's last unit was taken: the moment at which `Huge::Collapse` asks for huge pages. A SuperSlab smaller
    /// than a huge page is collapsed together with those that share it. Best effort, as all advice.
    pub(crate) fn collapse_filled(&self, superslab: M::SuperSlab) {
        if self.policy.huge != Huge::Collapse || self.mem.meta(superslab).collapsed.replace(true) {
            return;
        }
        let own = self.run_range(self.mem.ordinal(superslab), 1 << self.geometry.superslab_shift());
        let range = match self.policy.align {
            Align::Arena => whole_huge_pages(own),
            // Nobody knows whose memory lies beside it.
            Align::Trim | Align::Kernel => own,
        };
        let _ = self.mem.advise(range, Advice::Collapse);
    }

    /// Maps reserved huge pages under SuperSlabs that have none yet, and notes them prepared. Lock held. False where the
    /// kernel left a hole: the SuperSlabs in it are lost, and the others as they were.
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
                        self.lose(from, to - from);
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

    /// SuperSlabs that share a huge page; 1 where a SuperSlab has one or more to itself.
    pub(crate) fn superslabs_per_huge_page(&self) -> u32 {
        ((HUGE_PAGE_BYTES >> self.geometry.superslab_shift()) as u32).max(1)
    }

    fn is_backed(&self, first: u32, group: u32) -> bool {
        let high = self.mem.pool().high_water.get();
        (first..(first + group).min(high)).any(|ordinal| self.mem.entry(ordinal).prepared.get())
    }

    /// Maps reserved huge pages, or takes the next step of the ladder and counts it. False if there is a hole instead.
    fn map_hugetlb(&self, range: ArenaRange, count: u32) -> bool {
        let mapping = match self.policy.prefault {
            Prefault::Populate => Mapping::HugetlbPopulated,
            _ => Mapping::Hugetlb,
        };
        if self.mem.map(range, mapping).is_ok() {
            return true;
        }
        // A refused fixed map may have removed what was there.
        if self.mem.map(range, Mapping::Plain).is_err() {
            return false;
        }
        let pool = self.mem.pool();
        match self.policy.huge {
            Huge::Hugetlb if self.mem.advise(range, Advice::HugePage).is_ok() => {
                pool.fell_back_thp.set(pool.fell_back_thp.get() + count);
            }
            _ => pool.fell_back_plain.set(pool.fell_back_plain.get() + count),
        }
        true
    }

    /// Gives a range's memory back as the policy says.
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

    /// The end of [`Purge::Unmap`] with one call, for a part of a map among foreign ones: somebody else's `mmap` could
    /// take a hole.
    fn replace(&self, range: ArenaRange) -> Purged {
        if self.map_again(range) { Purged::Zero } else { Purged::Hole }
    }

    /// `MADV_DONTNEED` on hugetlb rounds its length down silently (R13): then nothing is known to be zero.
    fn purges_whole(&self, range: ArenaRange) -> bool {
        match self.policy.huge {
            Huge::Hugetlb | Huge::HugetlbPlain => whole_huge_pages(range) == range,
            Huge::Never | Huge::Thp | Huge::System | Huge::Collapse => true,
        }
    }

    /// Re-reserves a hole in the arena, as it was mapped at first. False if it stays a hole.
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

/// The huge pages a range touches.
fn whole_huge_pages(range: ArenaRange) -> ArenaRange {
    let start = range.start - range.start % HUGE_PAGE_BYTES;
    let end = (range.start + range.bytes).next_multiple_of(HUGE_PAGE_BYTES);
    ArenaRange { start, bytes: end - start }
}

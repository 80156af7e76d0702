//! What a TLB could cover of the live set over time, and, where every access is known, what it misses.

use std::ops::Range;

use hksim_policy::Errno;
use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use serde::Serialize;

use crate::accounts::Accounts;
use crate::hooks::{Hooks, Touch, Watch, Why};
use crate::tlb::{Geometry, HitCounts, LiveMix, PageSize, Reach, TwoLevel};
use hksim_linux_mm::{BLOCK_PAGES, BlockState, Content, Kernel};

/// What one core's data TLB makes of a run.
#[derive(Clone, Debug, Serialize)]
pub struct TlbReport {
    /// The core: its name, levels, sources.
    pub core: &'static Geometry,
    /// Reach over the live set at evenly spaced points and at the end.
    pub reach: Vec<ReachSample>,
    /// Hits and misses; absent unless every access of the program is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses: Option<TlbMisses>,
    /// Why there are no misses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_skipped: Option<&'static str>,
}

/// The live set at one point, and what entries can map of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReachSample {
    /// Events done.
    pub event: u64,
    /// Pages that live objects lie on, by the entry that maps them.
    pub live: LiveMix,
    /// Share of the 4 KiB pages under live objects that huge pages map, 0 to 1.
    pub huge_coverage: f64,
    /// First level.
    pub l1: Reach,
    /// Second level.
    pub l2: Reach,
}

/// One access a page and touch: what is repeated on the same page at once hits anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlbMisses {
    /// Accesses by the application.
    pub application: HitCounts,
    /// Accesses by the allocator: links, headers, metadata, zeroing, copying.
    pub allocator: HitCounts,
}

/// Accounts beside a TLB that sees every access.
pub(crate) struct TlbWatch {
    accounts: Accounts,
    tlb: TwoLevel,
    application: HitCounts,
}

impl TlbWatch {
    pub(crate) fn new(accounts: Accounts, core: &Geometry) -> TlbWatch {
        TlbWatch { accounts, tlb: TwoLevel::new(core), application: HitCounts::default() }
    }

    /// Entries die with what they map.
    fn changed(&mut self, pages: &Range<u64>) {
        self.tlb.invalidate(pages.clone());
    }
}

fn less(all: HitCounts, part: HitCounts) -> HitCounts {
    HitCounts { l1: all.l1 - part.l1, l2: all.l2 - part.l2, misses: all.misses - part.misses }
}

fn page_size(kernel: &Kernel, page: u64) -> PageSize {
    match kernel.block_state(page) {
        BlockState::Thp | BlockState::HugeZero | BlockState::Hugetlb => PageSize::Huge,
        BlockState::None | BlockState::Table => PageSize::Base,
    }
}

impl Watch for TlbWatch {
    fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    fn accounts_mut(&mut self) -> &mut Accounts {
        &mut self.accounts
    }

    fn misses(&self) -> Option<TlbMisses> {
        let allocator = less(self.tlb.counts(), self.application);
        Some(TlbMisses { application: self.application, allocator })
    }
}

impl Hooks for TlbWatch {
    const EVERY_ACCESS: bool = true;

    fn touch(&mut self, page: u64, touch: Touch, why: Why) {
        self.accounts.touch(page, touch, why);
    }

    fn access(&mut self, pages: Range<u64>, why: Why) {
        let before = self.tlb.counts();
        for page in pages {
            let size = page_size(self.accounts.kernel(), page);
            self.tlb.access(page, size);
        }
        if why == Why::Application {
            let now = less(self.tlb.counts(), before);
            self.application.l1 += now.l1;
            self.application.l2 += now.l2;
            self.application.misses += now.misses;
        }
    }

    fn reserve(&mut self, pages: Range<u64>) {
        self.accounts.reserve(pages);
    }

    fn map(&mut self, pages: Range<u64>, mapping: Mapping) -> Result<(), Errno> {
        self.changed(&pages);
        self.accounts.map(pages, mapping)
    }

    fn map_anywhere(&mut self, pages: u64, mapping: Mapping) -> Result<u64, Errno> {
        self.accounts.map_anywhere(pages, mapping)
    }

    fn trim(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.changed(&pages);
        self.accounts.trim(pages)
    }

    fn unmap(&mut self, pages: Range<u64>) -> Result<(), Errno> {
        self.changed(&pages);
        self.accounts.unmap(pages)
    }

    fn content(&mut self, page: u64, content: Content) {
        self.accounts.content(page, content);
    }

    fn advise(&mut self, pages: Range<u64>, advice: Advice) -> Result<(), Errno> {
        if matches!(advice, Advice::DontNeed | Advice::Free) {
            self.changed(&pages);
        }
        self.accounts.advise(pages, advice)
    }

    fn lock_process(&mut self, lock: MemoryLock) {
        self.accounts.lock_process(lock);
    }

    fn lock(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno> {
        self.accounts.lock(pages, locking)
    }

    fn remap(&mut self, pages: Range<u64>, to: u64) -> Result<(), Errno> {
        self.changed(&pages);
        self.changed(&(to..to + pages.end - pages.start));
        self.accounts.remap(pages, to)
    }
}

/// Looks at the pages under live objects; `live` are page ranges, in any order.
pub(crate) fn sample(event: u64, core: &Geometry, kernel: &Kernel, mut live: Vec<Range<u64>>) -> ReachSample {
    live.sort_unstable_by_key(|range| range.start);
    let (mut mix, mut under_huge, mut done, mut last_huge) = (LiveMix::default(), 0, 0, None);
    for range in live {
        let mut page = range.start.max(done);
        while page < range.end {
            let block = page / BLOCK_PAGES;
            let block_end = ((block + 1) * BLOCK_PAGES).min(range.end);
            match page_size(kernel, page) {
                PageSize::Base => mix.base_pages += block_end - page,
                PageSize::Huge => {
                    under_huge += block_end - page;
                    mix.huge_pages += u64::from(last_huge.replace(block) != Some(block));
                }
            }
            page = block_end;
        }
        done = done.max(range.end);
    }
    let pages = (mix.base_pages + under_huge).max(1);
    ReachSample {
        event,
        live: mix,
        huge_coverage: under_huge as f64 / pages as f64,
        l1: core.l1.reach(mix),
        l2: core.l2.reach(mix),
    }
}

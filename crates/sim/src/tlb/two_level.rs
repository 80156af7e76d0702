//! A two-level data TLB, simulated access by access.

use std::ops::Range;

use hksim_linux_mm::PMD_PAGES;
use serde::{Deserialize, Serialize};

use super::PageSize;
use super::array::LruArray;
use super::geometry::{Geometry, Level};
use super::stacks::MissStacks;

/// Up to this many invalidated pages are looked up one by one.
const FEW_PAGES: u64 = 64;

/// Where a translation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Hit {
    /// First level.
    L1,
    /// Second level.
    L2,
    /// In no level: the page tables are walked.
    Miss,
}

/// Number of accesses, by where their translation was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitCounts {
    /// In the first level.
    pub l1_hits: u64,
    /// In the second level.
    pub l2_hits: u64,
    /// In no level.
    pub misses: u64,
}

impl HitCounts {
    /// The total.
    pub fn accesses(&self) -> u64 {
        self.l1_hits + self.l2_hits + self.misses
    }
}

/// One level: an array for both page sizes, or one for each.
#[derive(Clone, Debug)]
struct LevelState {
    base: LruArray,
    /// `None` if one array stores both sizes.
    huge: Option<LruArray>,
}

impl LevelState {
    fn new(level: Level) -> Self {
        match level {
            Level::Shared(array) => Self { base: LruArray::new(array), huge: None },
            Level::Split { base, huge } => Self { base: LruArray::new(base), huge: Some(LruArray::new(huge)) },
        }
    }

    #[inline]
    fn array(&mut self, size: PageSize) -> &mut LruArray {
        match (size, &mut self.huge) {
            (PageSize::Huge, Some(huge)) => huge,
            _ => &mut self.base,
        }
    }

    /// Looks up the entry for a page of 4 KiB that is mapped with this size. Returns whether it was there.
    #[inline]
    fn access(&mut self, page: u64, size: PageSize) -> bool {
        let number = size.entry_of(page);
        self.array(size).access(number, key(number, size))
    }

    /// Removes every entry that maps any of these pages, of which there is at least one.
    fn invalidate(&mut self, pages: &Range<u64>) {
        if pages.end - pages.start <= FEW_PAGES {
            for size in [PageSize::Base, PageSize::Huge] {
                for number in size.entry_of(pages.start)..=size.entry_of(pages.end - 1) {
                    self.array(size).remove(number, key(number, size));
                }
            }
            return;
        }
        let dies = |key: u64| {
            let (number, length) = if key & 1 == 0 { (key >> 1, 1) } else { ((key >> 1) * PMD_PAGES, PMD_PAGES) };
            number < pages.end && pages.start < number + length
        };
        self.base.retain_not(dies);
        if let Some(huge) = &mut self.huge {
            huge.retain_not(dies);
        }
    }
}

/// The first level.
#[derive(Clone, Debug)]
enum FirstLevel {
    Arrays(LevelState),
    /// One fully associative array of this many entries: they are the first ones of the stack.
    OfStack(usize),
}

/// The TLBs of one core, and fully associative TLBs of other sizes. A miss fills both levels, and a hit in the second
/// level fills the first. An eviction from one level does not affect the other.
#[derive(Clone, Debug)]
pub struct TwoLevel {
    l1: FirstLevel,
    l2: LevelState,
    stacks: MissStacks,
    counts: HitCounts,
}

impl TwoLevel {
    /// Empty TLBs with this geometry. `sizes`, in ascending order, are the numbers of entries of the fully associative TLBs.
    pub fn new(geometry: &Geometry, sizes: &[usize]) -> Self {
        let mut sizes = sizes.to_vec();
        let l1 = match geometry.l1 {
            Level::Shared(array) if array.sets() == 1 => {
                let entries = array.entries() as usize;
                sizes.push(entries);
                sizes.sort_unstable();
                sizes.dedup();
                FirstLevel::OfStack(entries)
            }
            level => FirstLevel::Arrays(LevelState::new(level)),
        };
        let (l2, stacks) = (LevelState::new(geometry.l2), MissStacks::new(&sizes));
        Self { l1, l2, stacks, counts: HitCounts::default() }
    }

    /// Accesses the 4 KiB page `page_4k`, which is currently mapped by an entry of `size`. The page number in units of
    /// `size` selects the entry's set.
    #[inline]
    pub fn access(&mut self, page_4k: u64, size: PageSize) -> Hit {
        let least = self.stacks.access(page_4k, size);
        let hits_l1 = match &mut self.l1 {
            FirstLevel::OfStack(entries) => least.is_some_and(|least| least <= *entries),
            FirstLevel::Arrays(level) => level.access(page_4k, size),
        };
        if hits_l1 {
            self.counts.l1_hits += 1;
            return Hit::L1;
        }
        if self.l2.access(page_4k, size) {
            self.counts.l2_hits += 1;
            return Hit::L2;
        }
        self.counts.misses += 1;
        Hit::Miss
    }

    /// Accesses the page of the last access again, of which nothing changed in between.
    #[inline(always)]
    pub fn access_again(&mut self) {
        self.counts.l1_hits += 1;
    }

    /// Invalidates every entry that maps any of these 4 KiB pages. Call it after a purge, a split or a change of protection.
    /// Takes time proportional to the number of entries, or of pages if there are few.
    pub fn invalidate(&mut self, pages_4k: Range<u64>) {
        if pages_4k.is_empty() {
            return;
        }
        if let FirstLevel::Arrays(level) = &mut self.l1 {
            level.invalidate(&pages_4k);
        }
        self.l2.invalidate(&pages_4k);
        self.stacks.invalidate(&pages_4k);
    }

    /// The fully associative TLBs.
    pub fn stacks(&self) -> &MissStacks {
        &self.stacks
    }

    /// Accesses since the start.
    pub fn counts(&self) -> HitCounts {
        self.counts
    }
}

/// Page number and size in one word, the size in the lowest bit.
#[inline]
fn key(number: u64, size: PageSize) -> u64 {
    number << 1 | u64::from(size == PageSize::Huge)
}

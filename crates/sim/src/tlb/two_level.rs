//! A two-level data TLB, simulated access by access.

use std::ops::Range;

use hksim_linux_mm::PMD_PAGES;
use serde::{Deserialize, Serialize};

use super::PageSize;
use super::array::LruArray;
use super::geometry::{Geometry, Level};

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

    fn retain_not(&mut self, dies: impl Fn(u64) -> bool) {
        self.base.retain_not(&dies);
        if let Some(huge) = &mut self.huge {
            huge.retain_not(&dies);
        }
    }
}

/// The TLBs of one core. A miss fills both levels, and a hit in the second level fills the first. An eviction from one
/// level does not affect the other.
#[derive(Clone, Debug)]
pub struct TwoLevel {
    l1: LevelState,
    l2: LevelState,
    /// Key of the previous access. It is the most recently used entry of its set.
    last: Option<u64>,
    counts: HitCounts,
}

impl TwoLevel {
    /// Empty TLBs with this geometry.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            l1: LevelState::new(geometry.l1),
            l2: LevelState::new(geometry.l2),
            last: None,
            counts: HitCounts::default(),
        }
    }

    /// Accesses the 4 KiB page `page_4k`, which is currently mapped by an entry of `size`. The page number in units of
    /// `size` selects the entry's set.
    #[inline]
    pub fn access(&mut self, page_4k: u64, size: PageSize) -> Hit {
        let number = match size {
            PageSize::Base => page_4k,
            PageSize::Huge => page_4k / PMD_PAGES,
        };
        let key = key(number, size);
        // Accessing the same page again does not change the LRU order.
        if self.last == Some(key) {
            self.counts.l1_hits += 1;
            return Hit::L1;
        }
        self.last = Some(key);
        if self.l1.array(size).access(number, key) {
            self.counts.l1_hits += 1;
            return Hit::L1;
        }
        if self.l2.array(size).access(number, key) {
            self.counts.l2_hits += 1;
            return Hit::L2;
        }
        self.counts.misses += 1;
        Hit::Miss
    }

    /// Invalidates every entry, in both levels, that maps any of these 4 KiB pages. Call it after a purge, a split or a
    /// change of protection. Takes time proportional to the number of entries.
    pub fn invalidate(&mut self, pages_4k: Range<u64>) {
        if pages_4k.is_empty() {
            return;
        }
        let dies = |key: u64| {
            let (number, length) = if key & 1 == 0 { (key >> 1, 1) } else { ((key >> 1) * PMD_PAGES, PMD_PAGES) };
            number < pages_4k.end && pages_4k.start < number + length
        };
        self.l1.retain_not(dies);
        self.l2.retain_not(dies);
        self.last = None;
    }

    /// Accesses since the start.
    pub fn counts(&self) -> HitCounts {
        self.counts
    }
}

/// Page number and size in one word, the size in the lowest bit.
#[inline]
pub(super) fn key(number: u64, size: PageSize) -> u64 {
    number << 1 | u64::from(size == PageSize::Huge)
}

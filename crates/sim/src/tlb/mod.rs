//! TLB models: geometries of real cores, a simulation of a two-level TLB, and the reach of its entries.
//!
//! Misses are predicted only for complete address streams; for anything else, use [`Reach`]. Not modelled: prefetch of
//! translations, coalescing of neighbouring entries, instruction fetches in unified second levels, and replacement
//! other than exact LRU.
//!
//! ```
//! use hksim_sim::tlb::{Geometry, Hit, PageSize, TwoLevel};
//!
//! let mut tlb = TwoLevel::new(Geometry::named("zen5").unwrap(), &[]);
//! assert_eq!(tlb.access(512, PageSize::Huge), Hit::Miss);
//! assert_eq!(tlb.access(1023, PageSize::Huge), Hit::L1);
//! tlb.invalidate(600..601);
//! assert_eq!(tlb.access(512, PageSize::Huge), Hit::Miss);
//! ```

mod array;
mod cores;
mod geometry;
mod lru_stack;
mod reach;
mod stacks;
mod two_level;

pub use geometry::{Array, Geometry, GeometryError, Level};
pub use reach::{LiveMix, Reach};
pub use stacks::MissStacks;
pub use two_level::{Hit, HitCounts, TwoLevel};

use hksim_linux_mm::{PAGE_BYTES, PMD_PAGES};
use serde::Serialize;

/// The page size that an entry maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PageSize {
    /// 4 KiB.
    #[serde(rename = "4K")]
    Base,
    /// 2 MiB.
    #[serde(rename = "2M")]
    Huge,
}

impl PageSize {
    /// Bytes mapped by one entry.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => PAGE_BYTES,
            Self::Huge => PAGE_BYTES * PMD_PAGES,
        }
    }

    /// The number of the entry that maps a 4 KiB page, in units of the entry's size.
    const fn entry_of(self, page: u64) -> u64 {
        match self {
            Self::Base => page,
            Self::Huge => page / PMD_PAGES,
        }
    }
}

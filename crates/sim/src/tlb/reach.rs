//! Reach: how many bytes the entries of a level can map at once.

use serde::Serialize;

use super::PageSize;
use super::geometry::Level;

/// What a program keeps mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LiveMix {
    /// Pages mapped 4 KiB at a time.
    pub base_pages: u64,
    /// Pages mapped 2 MiB at a time.
    pub huge_pages: u64,
}

impl LiveMix {
    /// Bytes of both.
    pub fn bytes(&self) -> u64 {
        self.base_pages * PageSize::Base.bytes() + self.huge_pages * PageSize::Huge.bytes()
    }
}

/// What one level reaches, and how much of a live set that is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reach {
    /// Bytes mapped if every entry that can be is a 4 KiB one.
    pub base_bytes: u64,
    /// Bytes mapped if every entry that can be is a 2 MiB one.
    pub huge_bytes: u64,
    /// The most bytes of the live set that its entries can map at once, sets being no obstacle.
    pub live_bytes_covered: u64,
    /// The same as a share of the live set, 0 to 1; 1 for an empty one.
    pub live_fraction_covered: f64,
}

impl Level {
    /// The reach of this level over a live set. In a shared array the best use of entries takes huge pages first.
    pub fn reach(self, live: LiveMix) -> Reach {
        let capacity = |size| u64::from(self.array(size).entries());
        let huge_entries = live.huge_pages.min(capacity(PageSize::Huge));
        let base_room = match self {
            Self::Shared(_) => capacity(PageSize::Base) - huge_entries,
            Self::Split { .. } => capacity(PageSize::Base),
        };
        let covered = LiveMix { base_pages: live.base_pages.min(base_room), huge_pages: huge_entries }.bytes();
        Reach {
            base_bytes: capacity(PageSize::Base) * PageSize::Base.bytes(),
            huge_bytes: capacity(PageSize::Huge) * PageSize::Huge.bytes(),
            live_bytes_covered: covered,
            live_fraction_covered: if live.bytes() == 0 { 1.0 } else { covered as f64 / live.bytes() as f64 },
        }
    }
}

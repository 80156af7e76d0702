//! Reach: how many bytes the entries of a level can map at the same time.

use serde::{Deserialize, Serialize};

use super::PageSize;
use super::geometry::Level;

/// The mapped pages of a live set, by page size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveMix {
    /// Pages mapped 4 KiB at a time.
    pub base_pages: u64,
    /// Pages mapped 2 MiB at a time.
    pub huge_pages: u64,
}

impl LiveMix {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.base_pages * PageSize::Base.bytes() + self.huge_pages * PageSize::Huge.bytes()
    }
}

/// The reach of one level, and how much of a live set it covers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// Bytes mapped if all entries map 4 KiB.
    pub base_bytes: u64,
    /// Bytes mapped if all entries map 2 MiB.
    pub huge_bytes: u64,
    /// Maximum bytes of the live set that the entries can map at the same time, ignoring conflicts within sets.
    pub live_bytes_covered: u64,
    /// `live_bytes_covered` as a share of the live set, from 0 to 1. It is 1 if the live set is empty.
    pub live_share_covered: f64,
}

impl Level {
    /// The reach of this level over a live set. In a shared array, huge pages get entries first, which covers the most.
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
            live_share_covered: if live.bytes() == 0 { 1.0 } else { covered as f64 / live.bytes() as f64 },
        }
    }
}

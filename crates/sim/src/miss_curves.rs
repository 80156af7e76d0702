//! TLB misses by the number of entries: with the page sizes that the design gets, and with a single size throughout.
//!
//! The TLBs are fully associative with LRU replacement, so a curve is a property of the accesses and the page sizes, not
//! of a core. Both page sizes share the entries.

use serde::{Deserialize, Serialize};

use crate::tlb::MissStacks;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissPoint {
    /// Entries of the TLB.
    pub entries: usize,
    /// Its misses, of all accesses by program and allocator.
    pub misses: u64,
}

/// Curves over powers of two and the numbers half-way between them, up to the first size that misses only where every
/// TLB does: at first accesses, and after invalidations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissCurves {
    /// Every page with the size that mapped it at the time of the access.
    pub as_mapped: Vec<MissPoint>,
    /// As if all pages were 4 KiB.
    pub all_4k: Vec<MissPoint>,
    /// As if all pages were 2 MiB.
    pub all_2m: Vec<MissPoint>,
}

impl MissCurves {
    /// The numbers of entries on a curve: powers of two, and the numbers half-way between them.
    pub(crate) fn sizes() -> Vec<usize> {
        let far = (1..usize::BITS - 2).flat_map(|shift| [1 << shift, 3 << (shift - 1)]);
        [1].into_iter().chain(far).collect()
    }

    pub(crate) fn of(stacks: &MissStacks) -> MissCurves {
        MissCurves {
            as_mapped: curve(stacks.as_mapped()),
            all_4k: curve(stacks.all_4k()),
            all_2m: curve(stacks.all_2m()),
        }
    }
}

fn curve(misses: impl Iterator<Item = (usize, u64)>) -> Vec<MissPoint> {
    let misses: Vec<(usize, u64)> = misses.collect();
    let least = misses.last().map_or(0, |&(_, misses)| misses);
    let sizes = MissCurves::sizes();
    let mut points = Vec::new();
    for (entries, misses) in misses.into_iter().filter(|(entries, _)| sizes.binary_search(entries).is_ok()) {
        points.push(MissPoint { entries, misses });
        if misses == least && entries > 1 {
            break;
        }
    }
    points
}

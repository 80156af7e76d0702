//! TLB misses by the number of entries: with the page sizes that the design gets, and with a single size throughout.
//!
//! The TLBs are fully associative with LRU replacement, so a curve is a property of the accesses and the page sizes, not
//! of a core. Both page sizes share the entries.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::tlb::{PageSize, StackDistances};

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

/// The stacks from which the curves follow.
#[derive(Default)]
pub(crate) struct Stacks {
    /// `None` before the first huge page: it would equal `all_4k`.
    as_mapped: Option<StackDistances>,
    all_4k: StackDistances,
    all_2m: StackDistances,
}

impl Stacks {
    #[inline]
    pub(crate) fn access(&mut self, page: u64, mapped: PageSize) {
        if mapped == PageSize::Huge || self.as_mapped.is_some() {
            self.as_mapped.get_or_insert_with(|| self.all_4k.clone()).access(page, mapped);
        }
        self.all_4k.access(page, PageSize::Base);
        self.all_2m.access(page, PageSize::Huge);
    }

    pub(crate) fn invalidate(&mut self, pages: &Range<u64>) {
        for stack in self.as_mapped.iter_mut().chain([&mut self.all_4k, &mut self.all_2m]) {
            stack.invalidate(pages.clone());
        }
    }

    pub(crate) fn curves(&self) -> MissCurves {
        let as_mapped = self.as_mapped.as_ref().unwrap_or(&self.all_4k);
        MissCurves { as_mapped: curve(as_mapped), all_4k: curve(&self.all_4k), all_2m: curve(&self.all_2m) }
    }
}

fn curve(stack: &StackDistances) -> Vec<MissPoint> {
    let least = stack.misses(usize::MAX);
    let sizes = (0..usize::BITS - 2).flat_map(|shift| [2usize << shift, 3usize << shift]);
    let mut points = vec![MissPoint { entries: 1, misses: stack.misses(1) }];
    for entries in sizes {
        let misses = stack.misses(entries);
        points.push(MissPoint { entries, misses });
        if misses == least {
            break;
        }
    }
    points
}

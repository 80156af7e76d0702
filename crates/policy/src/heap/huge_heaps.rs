//! Which heaps get huge pages: in programs with many threads, further heaps start with small pages (`--huge-heaps`).
//!
//! A heap that holds a few KiB would make a whole huge page resident: 4 000 idle threads would take about 8 GB. So the
//! heaps in the first slots get huge pages from their first SuperSlab on, and all other heaps from their second. A heap
//! opens in the lowest free slot, so the rule counts the heaps that exist at the same time, not all heaps ever opened.
//!
//! The advice is set for whole SuperSlabs, when a clean SuperSlab is taken into use, and recorded in the arena table. A
//! SuperSlab with present pages keeps them: advice does not change present pages. The rule does not apply if SuperSlabs
//! share a huge page (small heaps then share it, too), or if they are prefaulted (all of their memory is then resident
//! anyway).

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{ArenaRange, Memory};
use crate::metadata::meta::Pages;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The page size for a heap's next SuperSlab.
    pub(crate) fn first_pages(&self, heap: &ThreadHeap<M>) -> Pages {
        let is_first = heap.own_head == 0;
        if is_first { self.paging(|paging, placement| paging.first_pages(placement, heap.id)) } else { Pages::Huge }
    }

    /// The page size last requested for a range within one SuperSlab or run.
    pub(crate) fn pages_of(&self, range: ArenaRange) -> Pages {
        self.mem.entry((range.start >> self.geometry.superslab_shift()) as u32).pages()
    }

    /// Requests a page size for the parts of a range for which a different size was requested last. Lock held.
    pub(crate) fn ask_for(&self, pages: Pages, first: u32, count: u32) {
        let end = first + count;
        let mut from = first;
        while from < end {
            let differs = |ordinal: u32| self.mem.entry(ordinal).pages() != pages;
            let to = (from..end).find(|&ordinal| !differs(ordinal)).unwrap_or(end);
            if from < to {
                let range = self.run_range(from, u64::from(to - from) << self.geometry.superslab_shift());
                self.perform(|paging, ops| paging.advise(ops, range, pages));
                (from..to).for_each(|ordinal| self.mem.entry(ordinal).set_pages(pages));
            }
            from = to + 1;
        }
    }
}

//! Where threads are many, their heaps begin with small pages.
//!
//! A heap that holds a few KiB would make a whole huge page resident: 4 000 idle threads some 8 GB. So the heaps in the first slots get
//! huge pages at once, and any further one from its second SuperSlab on. A slot is the lowest that is free when a
//! thread's heap opens, so the rule counts heaps that are there at once, not those that ever were.
//!
//! The advice is changed for whole SuperSlabs, when they are taken into use clean, and noted in the arena table. A SuperSlab keeps its pages
//! as long as it holds anything: advice does not change pages that are present. Not where a huge page is shared by SuperSlabs (then small
//! heaps share it too), nor where SuperSlabs are prefaulted (then all of it is resident anyway).

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::{Advice, ArenaRange, Memory};
use crate::meta::Pages;
use crate::vocabulary::{Huge, Prefault};

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Which pages a heap's next SuperSlab shall have.
    pub(crate) fn first_pages(&self, heap: &ThreadHeap<M>) -> Pages {
        let is_first = heap.own_head == 0;
        let has_huge_pages = self.policy.huge == Huge::Thp
            && self.policy.prefault == Prefault::Off
            && self.policy.huge_page_bytes <= 1 << self.geometry.superslab_shift();
        if is_first && has_huge_pages && heap.id >= self.policy.huge_heaps { Pages::Small } else { Pages::Huge }
    }

    /// Which pages were last asked for in a range within one SuperSlab or run.
    pub(crate) fn pages_of(&self, range: ArenaRange) -> Pages {
        self.mem.entry((range.start >> self.geometry.superslab_shift()) as u32).pages()
    }

    /// Asks for pages where others were asked for last. Lock held.
    pub(crate) fn ask_for(&self, pages: Pages, first: u32, count: u32) {
        let end = first + count;
        let mut from = first;
        while from < end {
            let differs = |ordinal: u32| self.mem.entry(ordinal).pages() != pages;
            let to = (from..end).find(|&ordinal| !differs(ordinal)).unwrap_or(end);
            if from < to {
                self.advise_pages(self.run_range(from, u64::from(to - from) << self.geometry.superslab_shift()), pages);
                (from..to).for_each(|ordinal| self.mem.entry(ordinal).set_pages(pages));
            }
            from = to + 1;
        }
    }

    /// The advice for pages, where huge ones are asked for at all. Best effort: a kernel without transparent huge pages refuses it, and
    /// the replay shows what came of it.
    pub(crate) fn advise_pages(&self, range: ArenaRange, pages: Pages) {
        if self.policy.huge != Huge::Thp {
            return;
        }
        let advice = match pages {
            Pages::Huge => Advice::HugePage,
            Pages::Small => Advice::NoHugePage,
        };
        let _ = self.mem.advise(range, advice);
    }
}

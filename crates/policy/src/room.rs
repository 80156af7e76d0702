//! A heap's SuperSlabs that have free units: a list by ordinal, as spans go to the lowest address.
//!
//! A heap may own thousands of them, none with room for what is asked for. So it notes up to where the last search found nothing, and what
//! it searched for; a search for something as hard to place begins there. SuperSlabs gain room when a span is given back and when
//! they are adopted: then the note reaches to the one before.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::meta::SuperSlabMeta;
use crate::own::Links;
use crate::span::{Found, Need};

/// SuperSlabs of the list that a heap notes, so that the place of another is found without walking there from the head.
const NOTED: usize = 256;
/// log2 of neighbouring ordinals that have one note: with fewer than 8192 SuperSlabs each note stands for 32 of them.
const NOTED_SHIFT: u32 = 5;

/// Some SuperSlabs of the list, by ordinal (ordinal + 1; 0: none).
pub(crate) struct Noted([u32; NOTED]);

impl Noted {
    pub(crate) const NOTHING: Noted = Noted([0; NOTED]);

    fn place(&mut self, link: u32) -> &mut u32 {
        &mut self.0[(link >> NOTED_SHIFT) as usize % NOTED]
    }

    /// A SuperSlab has come into the list.
    fn note(&mut self, link: u32) {
        *self.place(link) = link;
    }

    /// A SuperSlab leaves the list.
    fn forget(&mut self, link: u32) {
        let place = self.place(link);
        if *place == link {
            *place = 0;
        }
    }

    /// The last of them before `link`; 0 if there is none.
    fn before(&self, link: u32) -> u32 {
        self.0.iter().copied().filter(|&noted| noted < link).max().unwrap_or(0)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied().filter(|&noted| noted != 0)
    }
}

/// SuperSlabs that were looked at in vain before another need takes the note's place.
const LOOKED_AT_MIN: u32 = 64;

/// No SuperSlab in the list up to `to` (ordinal + 1; 0: none) has room for `need`.
pub(crate) struct Unfit {
    need: Need,
    to: u32,
}

impl Unfit {
    pub(crate) const NOTHING: Unfit = Unfit { need: Need::Units(u32::MAX), to: 0 };
}

impl<M: Memory> ThreadHeap<M> {
    /// What was searched for in vain, if that was so in this SuperSlab of the list (ordinal + 1).
    pub(crate) fn unfit_for(&self, link: u32) -> Option<Need> {
        (link <= self.unfit.to).then_some(self.unfit.need)
    }
}

fn room_links<W>(meta: &SuperSlabMeta<W>) -> Links<'_> {
    Links { next: &meta.room_next, prev: &meta.room_prev }
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Lists a SuperSlab that has free units, or more of them than before.
    pub(crate) fn enter_room_list(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let link = self.link_to(superslab);
        if !self.mem.meta(superslab).in_room.replace(true) {
            self.insert_room(heap, superslab, link);
        }
        if link <= heap.unfit.to {
            heap.unfit.to = self.mem.meta(superslab).room_prev.get();
        }
    }

    fn insert_room(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab, link: u32) {
        let prev = self.before_in_room(heap, link);
        let next = self.after_in_room(heap, prev);
        if let Some(head) = self.insert(superslab, prev, next, room_links) {
            heap.room_head = head;
        }
        if next == 0 {
            heap.room_tail = link;
        }
        heap.noted.note(link);
    }

    /// The last in the list before a SuperSlab that is not in it.
    fn before_in_room(&self, heap: &ThreadHeap<M>, link: u32) -> u32 {
        if heap.room_tail < link {
            return heap.room_tail;
        }
        let unfit = if heap.unfit.to < link { heap.unfit.to } else { 0 };
        let mut prev = unfit.max(heap.noted.before(link));
        loop {
            let next = self.after_in_room(heap, prev);
            if next == 0 || next > link {
                return prev;
            }
            prev = next;
        }
    }

    fn after_in_room(&self, heap: &ThreadHeap<M>, link: u32) -> u32 {
        self.meta_at(link).map_or(heap.room_head, |meta| meta.room_next.get())
    }

    /// Its last free unit is taken.
    pub(crate) fn leave_room_list(&self, heap: &mut ThreadHeap<M>, superslab: M::SuperSlab) {
        let meta = self.mem.meta(superslab);
        if !meta.in_room.replace(false) {
            return;
        }
        let (link, prev) = (self.link_to(superslab), meta.room_prev.get());
        if heap.room_tail == link {
            heap.room_tail = prev;
        }
        if heap.unfit.to == link {
            heap.unfit.to = prev;
        }
        heap.noted.forget(link);
        heap.room_head = self.remove(superslab, heap.room_head, room_links);
    }

    /// First fit in the heap's SuperSlabs.
    pub(crate) fn find_room(&self, heap: &mut ThreadHeap<M>, need: Need) -> Option<(M::SuperSlab, Found)> {
        let is_as_hard = self.is_as_hard(need, heap.unfit.need);
        let (mut looked_at, mut last) = (0, if is_as_hard { heap.unfit.to } else { 0 });
        let mut found = None;
        while let Some(ordinal) = self.after_in_room(heap, last).checked_sub(1) {
            let superslab = self.mem.superslab(ordinal);
            found = self.find_units(superslab, need).map(|found| (superslab, found));
            if found.is_some() {
                break;
            }
            (looked_at, last) = (looked_at + 1, ordinal + 1);
        }
        // A harder one says less, so it takes the place only of what costs more.
        if need == heap.unfit.need || heap.unfit.to == 0 || looked_at >= LOOKED_AT_MIN {
            heap.unfit = Unfit { need, to: last };
        }
        found
    }

    /// Whether no SuperSlab has room for a need that has none for the other.
    fn is_as_hard(&self, need: Need, other: Need) -> bool {
        let units = |bytes: u64| bytes.div_ceil(1 << self.geometry.unit_shift());
        match (need, other) {
            (Need::Units(units), Need::Units(others)) => units >= others,
            (Need::Bytes { bytes, align }, Need::Bytes { bytes: others, align: others_align }) => {
                bytes >= others && align >= others_align
            }
            (Need::Bytes { bytes, .. }, Need::Units(others)) => units(bytes) >= u64::from(others),
            // What is reserved in a SuperSlab's first units and the alignment take less than a unit each.
            (Need::Units(own), Need::Bytes { bytes, .. }) => u64::from(own) >= units(bytes) + 2,
        }
    }
}

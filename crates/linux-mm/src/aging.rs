//! MADV_FREE and MADV_COLD: pages stay mapped, but a folio that the range covers only in part is split (R9a, R9b, R25).

use std::ops::Range;

use super::Kernel;
use super::entry::{PmdEntry, PteKind, PteTable};
use super::flush::Flush;
use super::rules::{MadvFreeSharedTest, MadvFreeSplit};
use super::span::{clip, index_of, is_whole_pmd, pmds_touching};
use super::work::Amount;

/// The advice that ages pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aging {
    /// Pages become clean and may be dropped under memory pressure.
    Free,
    /// Pages become candidates for reclaim. The effects in the model are the split, and that the pages are old.
    Cold,
}

impl Aging {
    /// Whether a small page or a whole folio is aged. One that other processes map too is left unchanged by `Cold`, and
    /// by `Free` if it is dirty.
    fn ages(self, is_shared: bool, is_dirty: bool) -> bool {
        match self {
            Self::Free => !(is_shared && is_dirty),
            Self::Cold => !is_shared,
        }
    }
}

impl Kernel {
    /// Ages the pages of `part`, which is inside one mapping. The huge zero page is skipped (R4b).
    pub(super) fn age(&mut self, part: &Range<u64>, aging: Aging) {
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            self.age_pmd(pmd, clip(part, pmd), aging);
            from = pmd + 1;
        }
    }

    fn age_pmd(&mut self, pmd: u64, pages: Range<u64>, aging: Aging) {
        if let Some(PmdEntry::Huge(huge)) = self.tables.entry_mut(pmd) {
            let mut memory = self.memory.get();
            let mut folio = huge.folio.map(|folio| memory.folios.get_mut(folio));
            // A huge page that other processes map too is skipped.
            if folio.as_ref().is_some_and(|folio| folio.is_shared()) {
                return;
            }
            if is_whole_pmd(&pages) {
                if !huge.old || aging == Aging::Free && huge.dirty {
                    self.flush.huge(pmd);
                }
                huge.old = true;
                if aging == Aging::Free {
                    let again = huge.lazy || folio.as_ref().is_some_and(|folio| folio.lazy);
                    self.operations.marked_free(Amount { huge: 1, ..Amount::default() }, again);
                    (huge.dirty, huge.page_dirty) = (false, false);
                    huge.lazy = true;
                    // A process that has exited may have left the folio dirty.
                    folio.iter_mut().for_each(|folio| folio.dirty = false);
                    drop(memory);
                    self.note_lazily_freed(pages.start);
                }
                return;
            }
            drop(memory);
            // The kernel splits the page together with its entry here, so every PTE gets the entry's dirty bit.
            let is_dirty = huge.dirty;
            self.split_entry(pmd);
            if let Some(table) = self.tables.table_mut(pmd).filter(|_| is_dirty) {
                table.ptes.iter_mut().for_each(|pte| pte.set_dirty(true));
            }
        }
        let mut page = pages.start;
        while page < pages.end {
            page += self.age_at(pmd, page, pages.end - page, aging);
        }
    }

    /// Ages the page or folio mapped at `page`. A folio is aged as a whole only if the next `room` pages contain all of
    /// it. Otherwise the folio is split and 0 is returned, so that the caller ages its pages one by one. Returns the
    /// number of pages done.
    fn age_at(&mut self, pmd: u64, page: u64, room: u64, aging: Aging) -> u64 {
        let start = index_of(page);
        let Some(table) = self.tables.table_mut(pmd) else { return room };
        if let Some(folio_page) = table.folio_page(start) {
            let batch = table.batch(start, start + room as usize);
            let mut memory = self.memory.get();
            let folio = memory.folios.get_mut(folio_page.folio);
            let by_first = self.config.rules.madv_free_shared_test == MadvFreeSharedTest::FirstPageMapcount
                && aging == Aging::Free;
            if by_first && !folio.maps_first_page_once() {
                return room;
            }
            if batch != folio.len() || self.config.rules.madv_free_split == MadvFreeSplit::Always {
                if folio.is_shared() {
                    return batch as u64;
                }
                drop(memory);
                self.split_folio(folio_page.folio);
                return 0;
            }
            let is_aged = aging.ages(folio.is_shared(), folio.dirty);
            if is_aged {
                for (page, index) in (page..).zip(start..start + batch) {
                    make_old(table, index, page, aging, &mut self.flush);
                }
            }
            if aging == Aging::Free && is_aged {
                self.operations.marked_free(Amount { pages: batch as u64, ..Amount::default() }, folio.lazy);
                table.ptes[start..start + batch].iter_mut().for_each(|pte| pte.set_dirty(false));
                folio.dirty = false;
                folio.lazy = true;
            }
            drop(memory);
            if aging == Aging::Free && is_aged {
                self.note_lazily_freed(page);
            }
            return batch as u64;
        }
        let is_shared = table.frame(start).is_some_and(|frame| self.memory.get().frames.is_shared(frame));
        let pte = table.ptes[start];
        if pte.kind() == PteKind::Base && aging.ages(is_shared, pte.page_dirty()) {
            make_old(table, start, page, aging, &mut self.flush);
            if aging == Aging::Free {
                self.operations.marked_free(Amount { pages: 1, ..Amount::default() }, pte.lazy());
                table.ptes[start].free_lazily();
                self.note_lazily_freed(page);
            }
        }
        1
    }
}

/// Makes the entry of a page old. If that changes it, processors may hold its translation: `Free` also makes it clean.
fn make_old(table: &mut PteTable, index: usize, page: u64, aging: Aging, flush: &mut Flush) {
    if !table.is_old(index) || aging == Aging::Free && table.ptes[index].entry_dirty() {
        flush.page(page);
    }
    table.set_old(index, true);
}

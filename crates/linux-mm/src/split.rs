//! Splits of a PMD entry into a PTE table (R7, R23), and of a folio into pages (R9b, R10).

use super::Kernel;
use super::entry::{FolioPage, PmdEntry, Pte, PteTable, TableOrigin};
use super::lock::Locked;
use super::rules::{PmdSplitDirty, WriteAfterMprotect, ZeroFilledOnSplit};
use super::span::{index_of, pages_of, pmd_of};

impl Kernel {
    /// Splits the huge PMD entry that maps both sides of page `at`, because a mapping boundary is now there (R23).
    pub(super) fn split_entry_across(&mut self, at: u64) {
        if pages_of(pmd_of(at)).start != at {
            self.split_entry(pmd_of(at));
        }
    }

    /// Replaces a huge PMD entry by a table of 512 PTEs. A huge page stays one folio with all its pages mapped; a huge
    /// zero page becomes 512 zero pages (R4b).
    pub(super) fn split_entry(&mut self, pmd: u64) {
        let huge = match self.tables.entry(pmd) {
            PmdEntry::Huge(huge) => Some(huge.clone()),
            PmdEntry::HugeZero => None,
            _ => return,
        };
        self.counters.pmd_splits += 1;
        let Some(huge) = huge else {
            self.tables.replace(pmd, PmdEntry::Table(PteTable::new(TableOrigin::HugeZeroPage, Pte::ZERO)));
            return;
        };
        let folio = match huge.folio {
            Some(folio) => {
                let mut memory = self.memory.get();
                memory.folios.split_whole(folio, self.space, pages_of(pmd));
                // The entry's bits move to the folio.
                let shared = memory.folios.get_mut(folio);
                shared.dirty |= huge.dirty;
                shared.lazy |= huge.lazy;
                folio
            }
            None => self.memory.get().folios.add(self.space, pages_of(pmd), huge.dirty || huge.page_dirty, huge.lazy),
        };
        let rules = &self.config.rules;
        let dirty = huge.dirty && rules.pmd_split_dirty == PmdSplitDirty::Ptes;
        let is_exclusive = huge.folio.is_none() && rules.write_after_mprotect != WriteAfterMprotect::Fault;
        let mut table = PteTable::new(TableOrigin::HugePage, Pte::NONE);
        for index in 0..table.ptes.len() {
            let mut pte = Pte::folio_page(huge.is_nonzero(index), dirty, huge.protected && !is_exclusive);
            if huge.protected {
                pte.protect_exclusive();
            }
            table.set_folio_page(index, pte, FolioPage { folio, index: index as u32 });
            table.set_old(index, huge.old);
        }
        self.tables.replace(pmd, PmdEntry::Table(table));
    }

    /// Splits a folio that no other process maps into single pages, wherever they are mapped. From Linux 6.12 on,
    /// zero-filled pages are replaced by the zero page (R10). If the folio or any of its entries is dirty, every
    /// remaining page becomes dirty (R9b).
    pub(super) fn split_folio(&mut self, id: u32) {
        self.counters.folio_splits += 1;
        let folio = self.memory.get().folios.take(id);
        let dirty = folio.dirty || folio.mapped_pages(self.space).any(|page| self.tables.pte(page).dirty());
        for page in folio.mapped_pages(self.space) {
            let folio_page = self.tables.pte(page);
            let mut pte = Pte::ZERO;
            // Locked pages are kept (R29c).
            let is_locked = self.vmas.covering_ref(page).is_some_and(|vma| vma.flags.locked != Locked::No);
            if folio_page.nonzero() || is_locked || self.config.rules.zero_filled_on_split == ZeroFilledOnSplit::Keep {
                pte = Pte::base(folio_page.nonzero(), false, folio.lazy);
                if dirty {
                    pte.dirty_both(folio_page.dirty());
                }
                pte.set_protected(folio_page.protected());
            }
            let is_old = self.tables.is_old(page);
            self.tables.set_pte(page, pte);
            self.tables.set_old(page, is_old);
        }
    }

    /// Clears one PTE. A folio without mapped pages is freed.
    pub(super) fn drop_page(&mut self, page: u64) {
        let Some(table) = self.tables.table_mut(pmd_of(page)) else { return };
        if let Some(folio_page) = table.folio_page(index_of(page)) {
            self.memory.get().folios.unmap(folio_page.folio, self.space, folio_page.index);
        } else if let Some(frame) = table.frame(index_of(page)) {
            self.memory.get().frames.release(frame);
        }
        self.tables.set_pte(page, Pte::NONE);
    }
}

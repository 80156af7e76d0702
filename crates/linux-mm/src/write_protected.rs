//! Writes to present pages that the mapping allows but the page-table entry does not (R27).

use super::Kernel;
use super::entry::{Access, PmdEntry, PteKind};
use super::outcome::{Install, InstallKind};
use super::rules::LargeFolioReuse;
use super::span::{index_of, pmd_of};

impl Kernel {
    /// A write to a write-protected huge page. If another process maps the huge page too, this process's entry is split
    /// and the written page is copied.
    pub(super) fn write_protected_huge(&mut self, page: u64, access: Access) -> Option<Install> {
        let Some(PmdEntry::Huge(huge)) = self.tables.entry_mut(pmd_of(page)) else { return None };
        if let Some(folio) = huge.folio {
            let mut memory = self.memory.get();
            if memory.folios.get(folio).is_shared() {
                drop(memory);
                self.split_entry(pmd_of(page));
                self.operations.copies_with_split += 1;
                return self.write_protected_page(page, access);
            }
            huge.page_dirty = memory.folios.get(folio).dirty;
            memory.folios.release(folio, self.space);
        }
        huge.folio = None;
        huge.protected = false;
        self.reused(page, access);
        None
    }

    /// A write to a write-protected page mapped by a PTE.
    pub(super) fn write_protected_page(&mut self, page: u64, access: Access) -> Option<Install> {
        if self.take_for_reuse(page) {
            self.reused(page, access);
            return None;
        }
        // The copy exists before the page that it replaces may be freed.
        self.request(1, Some(page));
        self.drop_page(page);
        self.operations.copied_pages += 1;
        self.install_base_page(page, access);
        Some(self.installed(InstallKind::Cow, page, 1))
    }

    /// Makes a page writable in place if no other process maps it. Returns whether it did.
    fn take_for_reuse(&mut self, page: u64) -> bool {
        let index = index_of(page);
        let Some(table) = self.tables.table_mut(pmd_of(page)) else { return false };
        let mut memory = self.memory.get();
        let may_reuse = match (table.ptes[index].kind(), table.folio_page(index), table.frame(index)) {
            (PteKind::FolioPage, ..) if table.ptes[index].is_exclusive() => true,
            (PteKind::FolioPage, Some(folio_page), _) => {
                let folio = memory.folios.get(folio_page.folio);
                let is_reused = match self.config.rules.large_folio_reuse {
                    LargeFolioReuse::LastPage => folio.is_last_page(),
                    LargeFolioReuse::Never => false,
                    LargeFolioReuse::AllButLastPage => !folio.is_last_page(),
                };
                !folio.is_shared() && is_reused
            }
            (_, _, Some(frame)) => {
                let is_shared = memory.frames.is_shared(frame);
                if !is_shared {
                    memory.frames.release(frame);
                    table.clear_frame(index);
                }
                !is_shared
            }
            _ => true,
        };
        if may_reuse {
            table.ptes[index].set_protected(false);
        }
        may_reuse
    }

    /// Counts a fault that made a page writable in place, and performs the write.
    fn reused(&mut self, page: u64, access: Access) {
        self.counters.faults += 1;
        self.counters.reuses += 1;
        if let Some(entry) = self.tables.entry_mut(pmd_of(page)) {
            entry.access(index_of(page), access);
        }
    }
}

//! Writes to pages that are present, in a mapping that allows writing, but may not be written in place.

use super::Kernel;
use super::entry::{Access, BlockEntry, PteKind};
use super::outcome::{Install, InstallKind};
use super::rules::LargeReuse;
use super::span::{block_of, index_of};

impl Kernel {
    /// The write to a huge page without permission to write.
    pub(super) fn write_protected_huge(&mut self, page: u64, access: Access) -> Option<Install> {
        if let Some(BlockEntry::Huge(huge)) = self.tables.entry_mut(block_of(page)) {
            huge.protected = false;
            self.reused(page, access);
        }
        None
    }

    /// The write to a page in a table without permission to write.
    pub(super) fn write_protected_page(&mut self, page: u64, access: Access) -> Option<Install> {
        if self.may_reuse(page) {
            if let Some(table) = self.tables.table_mut(block_of(page)) {
                table.ptes[index_of(page)].set_protected(false);
            }
            self.reused(page, access);
            return None;
        }
        self.drop_page(page);
        self.install_base_page(page, access);
        Some(self.installed(InstallKind::Cow, page, 1))
    }

    /// Whether the page may be written in place, there being no other owner of it.
    fn may_reuse(&mut self, page: u64) -> bool {
        let Some(table) = self.tables.table_mut(block_of(page)) else { return false };
        match table.piece(index_of(page)) {
            Some(piece) => {
                let is_last = self.folios.get(piece.folio).mapped_pages().nth(1).is_none();
                is_last == (self.config.rules.large_reuse == LargeReuse::LastPage)
            }
            None => table.ptes[index_of(page)].kind() == PteKind::Base,
        }
    }

    /// A fault that made a page writable where it is, and the write that follows.
    fn reused(&mut self, page: u64, access: Access) {
        self.counters.faults += 1;
        self.counters.reuses += 1;
        if let Some(entry) = self.tables.entry_mut(block_of(page)) {
            entry.access(index_of(page), access);
        }
    }
}

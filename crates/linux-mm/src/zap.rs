//! Dropping pages: DONTNEED and the page half of munmap (R7, R8').

use std::ops::Range;

use super::Kernel;
use super::entry::{BlockEntry, PteKind};
use super::rules::EmptyTables;
use super::span::{blocks_touching, clip, index_of, is_whole_block};

impl Kernel {
    /// Drops the pages of `part`, which lies inside one mapping.
    pub(super) fn zap(&mut self, part: &Range<u64>, empty_tables: EmptyTables) {
        let blocks = blocks_touching(part);
        let mut from = blocks.start;
        while let Some(block) = self.tables.next_present(from, blocks.end) {
            let pages = clip(part, block);
            let whole = is_whole_block(&pages);
            let huge = matches!(self.tables.entry(block), BlockEntry::Huge(_) | BlockEntry::HugeZero);
            if whole && huge {
                self.take_huge(block);
            } else {
                self.split_entry(block);
                self.zap_table(block, pages);
                if whole && empty_tables == EmptyTables::Free {
                    self.tables.take(block);
                }
            }
            from = block + 1;
        }
    }

    /// Takes the entry of a huge page out, or of the huge zero page.
    fn take_huge(&mut self, block: u64) {
        if let BlockEntry::Huge(huge) = self.tables.take(block)
            && let Some(folio) = huge.folio
        {
            self.memory.get().folios.leave(folio, self.space);
        }
    }

    /// Drops everything, as at exit.
    pub(super) fn release_all(&mut self) {
        for vma in self.vmas.all() {
            if vma.flags.hugetlb {
                self.release_hugetlb(&vma, &vma.pages());
            } else {
                self.zap(&vma.pages(), EmptyTables::Keep);
            }
        }
    }

    fn zap_table(&mut self, block: u64, pages: Range<u64>) {
        for page in pages {
            let Some(table) = self.tables.table_mut(block) else { return };
            if table.ptes[index_of(page)].kind() != PteKind::None {
                self.drop_page(page);
            }
        }
    }
}

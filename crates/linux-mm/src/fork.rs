//! fork: a second address space whose pages are shared until one of both writes them (R16', R27).

use std::ops::Range;

use super::Kernel;
use super::entry::{BlockEntry, PteKind};
use super::lock::Locked;
use super::outcome::Counters;
use super::page_tables::PageTables;
use super::span::{BLOCK_PAGES, blocks_touching, clip, index_of};
use super::vma::Vma;

impl Kernel {
    /// fork: the child's address space. Every page of both is shared from now on, and the first write to one that is
    /// still shared is a fault that copies 4 KiB; one that is shared no more is a fault that copies nothing
    /// ([`Counters::reuses`]). Of mappings that were never written the child gets no page tables: it faults afresh.
    ///
    /// The child counts its own faults from zero. Dropping it is its exit. The kernel's fork itself costs the parent
    /// no fault. Reserved huge pages are promised to the parent alone; where the pool is empty a write to a shared one
    /// is a SIGBUS in the child, and in the parent, too (the kernel takes the page from the child; here who simulates the program does).
    pub fn fork(&mut self) -> Kernel {
        let mut child = Kernel {
            config: self.config.clone(),
            vmas: self.vmas.forked(),
            tables: PageTables::default(),
            space: self.memory.new_space(),
            memory: self.memory.clone(),
            counters: Counters::default(),
            promises_spent: Default::default(),
            thp_disable: self.thp_disable,
            lock_future: Locked::No,
            installs_kept_small: 0,
        };
        for vma in self.vmas.all() {
            if vma.anon.is_some() || vma.flags.hugetlb && self.holds_pages(&vma) {
                self.copy_tables(&vma, &mut child);
            }
        }
        child
    }

    fn holds_pages(&self, vma: &Vma) -> bool {
        let blocks = blocks_touching(&vma.pages());
        self.tables.next_present(blocks.start, blocks.end).is_some()
    }

    /// Copies the page tables of a mapping, write-protecting both sides. A table is copied even where it is empty.
    fn copy_tables(&mut self, vma: &Vma, child: &mut Kernel) {
        child.tables.copy_upper_levels(&self.tables, &vma.pages());
        let blocks = blocks_touching(&vma.pages());
        let mut from = blocks.start;
        while let Some(block) = self.tables.next_present(from, blocks.end) {
            from = block + 1;
            match self.tables.entry(block) {
                BlockEntry::None => {}
                BlockEntry::Table(_) => self.copy_table(block, clip(&vma.pages(), block), child),
                BlockEntry::Huge(_) => self.share_huge(block, child),
                BlockEntry::HugeZero => {
                    child.tables.replace(block, BlockEntry::HugeZero);
                }
                BlockEntry::Hugetlb { .. } => self.share_hugetlb(block, child),
            }
        }
    }

    fn copy_table(&mut self, block: u64, pages: Range<u64>, child: &mut Kernel) {
        child.tables.table_for(block);
        for page in pages {
            let Some(table) = self.tables.table_mut(block) else { return };
            let index = index_of(page);
            table.ptes[index].set_protected(table.ptes[index].is_anon());
            let pte = table.ptes[index];
            match pte.kind() {
                PteKind::None => {}
                PteKind::Zero => child.tables.set_pte(page, pte),
                PteKind::Base => {
                    let frame = self.memory.get().frames.share(table.frame(index));
                    table.set_frame(index, frame);
                    child.tables.set_numbered(page, pte, frame);
                }
                PteKind::Piece => {
                    if let Some(piece) = table.piece(index) {
                        self.memory.get().folios.map(piece.folio, child.space, piece.index, page);
                        child.tables.set_piece(page, pte, piece);
                    }
                }
            }
        }
    }

    fn share_huge(&mut self, block: u64, child: &mut Kernel) {
        let Some(BlockEntry::Huge(huge)) = self.tables.entry_mut(block) else { return };
        let mut memory = self.memory.get();
        match huge.folio {
            Some(folio) => memory.folios.map_whole(folio, child.space),
            None => {
                let spaces = [self.space, child.space];
                let dirty = std::mem::take(&mut huge.page_dirty);
                huge.folio = Some(memory.folios.add_whole(spaces, BLOCK_PAGES as usize, dirty, huge.lazy));
            }
        }
        huge.protected = true;
        child.tables.replace(block, BlockEntry::Huge(huge.clone()));
    }

    fn share_hugetlb(&mut self, block: u64, child: &mut Kernel) {
        let Some(BlockEntry::Hugetlb { writable, frame }) = self.tables.entry_mut(block) else { return };
        *frame = Some(self.memory.get().frames.share(*frame));
        *writable = false;
        let shared = BlockEntry::Hugetlb { writable: false, frame: *frame };
        child.tables.replace(block, shared);
    }
}

impl Drop for Kernel {
    /// Exit: pages shared with others are theirs from now on.
    fn drop(&mut self) {
        if self.memory.has_others() {
            self.release_all();
        }
    }
}

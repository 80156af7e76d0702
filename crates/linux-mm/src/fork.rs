//! fork, which creates an address space that shares its pages with the parent until one of them writes (R16, R27).

use std::ops::Range;

use super::Kernel;
use super::entry::{PmdEntry, PteKind};
use super::flush::Flush;
use super::lock::Locked;
use super::outcome::Counters;
use super::page_tables::PageTables;
use super::refaults::RefaultsByKind;
use super::returned::Returned;
use super::span::{PMD_PAGES, clip, index_of, pmds_touching};
use super::vma::Vma;
use super::work::PageOperations;

impl Kernel {
    /// fork: returns the child's address space. Every page is shared from now on. The first write to a page that is
    /// still shared is a fault that copies 4 KiB; the first write to a page that is no longer shared is a fault that
    /// copies nothing ([`Counters::reuses`]). The child gets no page tables for mappings that were never written, so
    /// its first touches there fault.
    ///
    /// The child's counters start at zero. Dropping the child is its exit. The fork itself charges the parent no fault.
    ///
    /// hugetlb reservations stay with the parent. If the pool is empty, a child that writes to a shared hugetlb page
    /// gets a SIGBUS. A parent with a reservation keeps the page when it writes, and the kernel unmaps the page from
    /// the children. The model only counts such pages ([`Counters::pages_kept_from_children`]).
    pub fn fork(&mut self) -> Kernel {
        let mut child = Kernel {
            config: self.config.clone(),
            vmas: self.vmas.forked(),
            orders: self.orders,
            tables: PageTables::default(),
            space: self.memory.new_space(),
            memory: self.memory.handle(),
            counters: Counters::default(),
            operations: PageOperations::default(),
            flush: Flush::default(),
            refaults: RefaultsByKind::default(),
            returned: Returned::default(),
            reservations_consumed: Default::default(),
            thp_disable: self.thp_disable,
            lock_future: Locked::No,
            installs_thp_denied: 0,
            populated: self.populated.as_ref().map(|_| Vec::new()),
            charge: self.charge.as_ref().map(|charge| charge.forked()),
        };
        for vma in self.vmas.all().into_iter().filter(|vma| vma.flags.other.is_copied_by_fork()) {
            if vma.anon.is_some() || vma.flags.hugetlb && self.holds_pages(&vma) {
                self.copy_tables(&vma, &mut child);
            }
        }
        self.operations.forks += 1;
        child.note_resident();
        child.note_charge();
        child
    }

    fn holds_pages(&self, vma: &Vma) -> bool {
        let pmds = pmds_touching(&vma.pages());
        self.tables.next_present(pmds.start, pmds.end).is_some()
    }

    /// Copies the page tables of a mapping and write-protects both sides. Empty tables are copied too.
    fn copy_tables(&mut self, vma: &Vma, child: &mut Kernel) {
        child.tables.copy_upper_levels(&self.tables, &vma.pages());
        let pmds = pmds_touching(&vma.pages());
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            match self.tables.entry(pmd) {
                PmdEntry::None => {}
                PmdEntry::Table(table) => {
                    child.tables.table_because_of(table.origin, pmd);
                    self.copy_table(pmd, clip(&vma.pages(), pmd), child);
                }
                PmdEntry::Huge(_) => self.share_huge(pmd, child),
                PmdEntry::HugeZero => {
                    child.tables.replace(pmd, PmdEntry::HugeZero);
                }
                PmdEntry::Hugetlb { .. } => self.share_hugetlb(pmd, child),
            }
        }
    }

    fn copy_table(&mut self, pmd: u64, pages: Range<u64>, child: &mut Kernel) {
        for page in pages {
            let Some(table) = self.tables.table_mut(pmd) else { return };
            let index = index_of(page);
            table.ptes[index].set_protected(table.ptes[index].is_anon());
            let pte = table.ptes[index];
            self.operations.forked_pages += u64::from(pte.is_anon());
            self.operations.forked_folio_pages += u64::from(pte.kind() == PteKind::FolioPage);
            match pte.kind() {
                PteKind::None => {}
                PteKind::Zero | PteKind::Guard => child.tables.set_pte(page, pte),
                PteKind::Base => {
                    let frame = self.memory.get().frames.share(table.frame(index));
                    table.set_frame(index, frame);
                    child.tables.set_numbered(page, pte, frame);
                }
                PteKind::FolioPage => {
                    if let Some(folio_page) = table.folio_page(index) {
                        self.memory.get().folios.map(folio_page.folio, child.space, folio_page.index, page);
                        child.tables.set_folio_page(page, pte, folio_page);
                    }
                }
            }
            // The child has not accessed the page yet.
            child.tables.set_old(page, pte.is_anon());
        }
    }

    fn share_huge(&mut self, pmd: u64, child: &mut Kernel) {
        let Some(PmdEntry::Huge(huge)) = self.tables.entry_mut(pmd) else { return };
        let mut memory = self.memory.get();
        match huge.folio {
            Some(folio) => memory.folios.map_whole(folio, child.space),
            None => {
                let spaces = [self.space, child.space];
                let dirty = std::mem::take(&mut huge.page_dirty);
                huge.folio = Some(memory.folios.add_whole(spaces, PMD_PAGES as usize, dirty, huge.lazy));
            }
        }
        huge.protected = true;
        let mut copy = huge.clone();
        copy.old = true;
        child.tables.replace(pmd, PmdEntry::Huge(copy));
    }

    fn share_hugetlb(&mut self, pmd: u64, child: &mut Kernel) {
        let Some(PmdEntry::Hugetlb { writable, frame }) = self.tables.entry_mut(pmd) else { return };
        *frame = Some(self.memory.get().pool_frames.share(*frame));
        *writable = false;
        let shared = PmdEntry::Hugetlb { writable: false, frame: *frame };
        child.tables.replace(pmd, shared);
    }
}

impl Drop for Kernel {
    /// Exit: the other address spaces of the family keep the shared pages.
    fn drop(&mut self) {
        if self.memory.has_others() {
            self.uncharge();
            self.release_all();
        }
    }
}

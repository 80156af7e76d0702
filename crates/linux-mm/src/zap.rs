//! Dropping pages: MADV_DONTNEED, MADV_GUARD_INSTALL, and the pages of munmap (R7, R8, R32).

use std::ops::Range;

use super::Kernel;
use super::entry::{PmdEntry, PteKind};
use super::flush::Flush;
use super::rules::EmptyPteTables;
use super::span::{PMD_PAGES, clip, index_of, is_whole_pmd, pmds_touching};
use super::work::Amount;

/// Why pages are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZapReason {
    /// Guard pages stay. A table may be freed (R8).
    DontNeed,
    /// Guard pages stay, and so do tables.
    GuardInstall,
    /// Guard pages are removed. The caller frees tables (R21).
    Unmap,
}

/// What became of a part of a PTE table.
struct Zapped {
    /// No guard page stayed.
    is_empty: bool,
    /// Dropped pages that belonged to a larger folio.
    folio_pages: u64,
}

impl Kernel {
    /// Drops the pages of `part`, which is inside one mapping, and counts them.
    pub(super) fn zap(&mut self, part: &Range<u64>, reason: ZapReason) {
        let frees_tables = reason == ZapReason::DontNeed && self.config.rules.empty_pte_tables == EmptyPteTables::Free;
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        let (rss_pages, mut huge, mut folio_pages) = (self.tables.rss_pages, 0, 0);
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            let pages = clip(part, pmd);
            let whole = is_whole_pmd(&pages);
            let is_huge = matches!(self.tables.entry(pmd), PmdEntry::Huge(_) | PmdEntry::HugeZero);
            if whole && is_huge {
                self.flush.huge(pmd);
                huge += u64::from(self.take_huge(pmd));
            } else {
                self.split_entry(pmd);
                let zapped = self.zap_table(pmd, pages, reason);
                folio_pages += zapped.folio_pages;
                if whole && frees_tables && zapped.is_empty {
                    self.tables.take(pmd);
                    self.flush.table(pmd);
                }
            }
            from = pmd + 1;
        }
        let pages = rss_pages - self.tables.rss_pages - huge * PMD_PAGES;
        let amount = Amount { pages, folio_pages, huge };
        self.flush.drops |= pages + huge > 0;
        match reason {
            ZapReason::DontNeed | ZapReason::GuardInstall => self.operations.dropped(amount),
            ZapReason::Unmap => self.operations.unmapped(amount),
        }
    }

    /// Removes the PMD entry of a huge page or of the huge zero page. Returns whether it was a huge page.
    fn take_huge(&mut self, pmd: u64) -> bool {
        let PmdEntry::Huge(huge) = self.tables.take(pmd) else { return false };
        if let Some(folio) = huge.folio {
            self.memory.get().folios.release(folio, self.space);
        }
        true
    }

    /// Drops everything, as at exit.
    pub(super) fn release_all(&mut self) {
        for vma in self.vmas.all() {
            if vma.flags.hugetlb {
                self.release_hugetlb(&vma, &vma.pages());
            } else {
                self.zap(&vma.pages(), ZapReason::Unmap);
            }
        }
        // Nothing uses the translations of a process that has ended.
        self.flush = Flush::default();
    }

    /// Clears entries of a PTE table.
    fn zap_table(&mut self, pmd: u64, pages: Range<u64>, reason: ZapReason) -> Zapped {
        let mut zapped = Zapped { is_empty: true, folio_pages: 0 };
        for page in pages {
            let Some(table) = self.tables.table_mut(pmd) else { return zapped };
            match table.ptes[index_of(page)].kind() {
                PteKind::None => {}
                PteKind::Guard if reason != ZapReason::Unmap => zapped.is_empty = false,
                kind => {
                    zapped.folio_pages += u64::from(kind == PteKind::FolioPage);
                    if kind != PteKind::Guard {
                        self.flush.page(page);
                    }
                    self.drop_page(page);
                }
            }
        }
        zapped
    }
}

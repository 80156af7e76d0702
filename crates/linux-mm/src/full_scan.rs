//! What one full scan of khugepaged does to an address space (R11). When it scans is not modelled; the effect of a scan
//! is exact.

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::entry::{PmdEntry, PteKind, PteTable};
use super::khugepaged::KhugepagedWork;
use super::rules::KhugepagedSharedTest;
use super::span::{PAGE_BYTES, PMD_PAGES};
use super::vma::Vma;

/// The work of khugepaged's scans. It is done by a thread of the kernel, so it is not in
/// [`PageOperations`](super::PageOperations), which are the process's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullScan {
    /// PMD ranges made huge.
    pub collapsed_pmds: u64,
    /// Pages that were present in them: copied into the huge pages.
    pub copied_pages: u64,
    /// Of those, pages that were freed: no other process maps them.
    pub freed_pages: u64,
    /// Pages that were absent or zero pages: cleared in the huge pages.
    pub zeroed_pages: u64,
}

/// An address space once khugepaged has settled: the process stays idle, and khugepaged has scanned it completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KhugepagedSettled {
    /// Resident bytes, hugetlb included.
    pub rss_bytes: u64,
    /// Transparent huge pages mapped by PMD entries.
    pub huge_pages: u64,
    /// The work until then.
    #[serde(flatten)]
    pub scan: FullScan,
}

impl Kernel {
    /// One full scan by khugepaged: each PMD range that it collapses becomes a huge page. A second scan changes nothing,
    /// unless another process has changed what is shared.
    ///
    /// khugepaged scans a process from the first time that it may get a huge page: at a touch, at `MADV_HUGEPAGE` for
    /// memory that was written, or when a mapping merges. The model assumes that this has happened.
    pub fn khugepaged_scan(&mut self) -> FullScan {
        let mut done = FullScan::default();
        for pmd in self.collapsed_by_scan() {
            let copied = self.collapse_pmd(pmd);
            done.add(copied.pages, copied.kept_by_others);
        }
        done
    }

    /// What [`Kernel::khugepaged_scan`] would leave. `None` if the configuration does not ask for it
    /// ([`KhugepagedWork::Settled`]).
    pub fn khugepaged_settled(&self) -> Option<KhugepagedSettled> {
        (self.config.khugepaged.work == KhugepagedWork::Settled).then(|| self.settled())
    }

    fn settled(&self) -> KhugepagedSettled {
        let mut scan = FullScan::default();
        for pmd in self.collapsed_by_scan() {
            let PmdEntry::Table(table) = self.tables.entry(pmd) else { continue };
            let present = (0..table.ptes.len()).filter(|&index| table.ptes[index].is_anon());
            let kept = present.clone().filter(|&index| self.is_mapped_by_others(table, index)).count();
            scan.add(present.count() as u64, kept as u64);
        }
        KhugepagedSettled {
            rss_bytes: self.resident_bytes() + scan.zeroed_pages * PAGE_BYTES,
            huge_pages: self.huge_pages() + scan.collapsed_pmds,
            scan,
        }
    }

    /// The PMD ranges that a scan makes huge, in ascending order (R11).
    fn collapsed_by_scan(&self) -> Vec<u64> {
        let is_scanned = |vma: &Vma| vma.anon.is_some() && !vma.flags.hugetlb && self.may_be_huge(vma);
        let mut found = Vec::new();
        for vma in self.vmas.all().into_iter().filter(is_scanned) {
            let (mut from, end) = (vma.start.div_ceil(PMD_PAGES), vma.end / PMD_PAGES);
            while let Some(pmd) = self.tables.next_present(from, end) {
                from = pmd + 1;
                if matches!(self.tables.entry(pmd), PmdEntry::Table(table) if self.is_collapsed_by_scan(&vma, table)) {
                    found.push(pmd);
                }
            }
        }
        found
    }

    /// Whether a scan collapses the range of this table, all of which is in one mapping.
    fn is_collapsed_by_scan(&self, vma: &Vma, table: &PteTable) -> bool {
        let (mut absent, mut shared, mut is_referenced) = (0, 0, false);
        for (index, pte) in table.ptes.iter().enumerate() {
            match pte.kind() {
                // For khugepaged a guard page is a page in swap, which it cannot bring in.
                PteKind::Guard => return false,
                PteKind::None | PteKind::Zero => absent += 1,
                PteKind::Base | PteKind::FolioPage => {
                    shared += u64::from(self.counts_as_shared(table, index));
                    is_referenced |= !table.is_old(index);
                }
            }
        }
        let limits = &self.config.khugepaged;
        let is_within_limits = absent <= limits.max_ptes_none && shared <= limits.max_ptes_shared;
        is_within_limits && is_referenced && self.may_collapse(vma, table)
    }

    /// Whether a present page counts against `max_ptes_shared` (R11c).
    fn counts_as_shared(&self, table: &PteTable, index: usize) -> bool {
        match table.folio_page(index) {
            Some(page) if self.config.rules.khugepaged_shared_test == KhugepagedSharedTest::Folio => {
                self.memory.get().folios.get(page.folio).is_shared()
            }
            _ => self.is_mapped_by_others(table, index),
        }
    }
}

impl FullScan {
    fn add(&mut self, present: u64, kept_by_others: u64) {
        self.collapsed_pmds += 1;
        self.copied_pages += present;
        self.freed_pages += present - kept_by_others;
        self.zeroed_pages += PMD_PAGES - present;
    }
}

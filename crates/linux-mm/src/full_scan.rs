//! What one full scan of khugepaged does to an address space (R11). When it scans is not modelled; the effect of a scan
//! is exact.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Kernel;
use super::collapse::CopiedPages;
use super::entry::{FolioPage, PmdEntry, Pte, PteTable};
use super::khugepaged::KhugepagedWork;
use super::scan_plan::PlannedFolio;
use super::span::{PAGE_BYTES, PMD_PAGES};
use super::state::PageState;
use super::vma::Vma;

/// The work of khugepaged's scans. It is done by a thread of the kernel, so it is not in
/// [`PageOperations`](super::PageOperations), which are the process's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullScan {
    /// PMD ranges made huge.
    pub collapsed_pmds: u64,
    /// Folios below 2 MiB that were made (R11f).
    #[serde(default)]
    pub collapsed_folios: u64,
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
    /// One full scan by khugepaged: ranges that it collapses become huge pages or, from Linux 7.2 on, smaller folios. A
    /// second scan changes nothing, unless another process has changed what is shared.
    ///
    /// khugepaged scans a process from the first time that it may get a huge page: at a touch, at `MADV_HUGEPAGE` for
    /// memory that was written, or when a mapping merges. The model assumes that this has happened.
    pub fn khugepaged_scan(&mut self) -> FullScan {
        let mut done = FullScan::default();
        for folio in self.planned_folios() {
            let copied = if folio.is_huge() { self.collapse_pmd(folio.pmd) } else { self.collapse_folio(&folio) };
            done.add(&folio, copied);
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
        for folio in self.planned_folios() {
            let PmdEntry::Table(table) = self.tables.entry(folio.pmd) else { continue };
            let present = folio.entries().filter(|&index| table.ptes[index].is_anon());
            let kept_by_others = present.clone().filter(|&index| self.is_mapped_by_others(table, index)).count() as u64;
            scan.add(&folio, CopiedPages { pages: present.count() as u64, kept_by_others });
        }
        KhugepagedSettled {
            rss_bytes: self.resident_bytes() + scan.zeroed_pages * PAGE_BYTES,
            huge_pages: self.huge_pages() + scan.collapsed_pmds,
            scan,
        }
    }

    /// The pages of the folios that a scan would make, in ascending order, each with their state then (R11).
    pub fn collapsed_by_scan(&self) -> Vec<(Range<u64>, PageState)> {
        let state = |folio: &PlannedFolio| if folio.is_huge() { PageState::Thp } else { PageState::Mthp };
        self.planned_folios().iter().map(|folio| (folio.pages(), state(folio))).collect()
    }

    fn planned_folios(&self) -> Vec<PlannedFolio> {
        let mut found = Vec::new();
        self.for_each_scanned(|pmd, vma, table| found.extend(self.planned_by_scan(pmd, vma, table)));
        found
    }

    /// Visits the PMD ranges with tables that a scan looks at, in ascending order, with the mapping that has all of each.
    pub(super) fn for_each_scanned(&self, mut visit: impl FnMut(u64, &Vma, &PteTable)) {
        let is_scanned = |vma: &Vma| vma.anon.is_some() && self.may_be_scanned(vma);
        for vma in self.vmas.all().into_iter().filter(is_scanned) {
            let (mut from, end) = (vma.start.div_ceil(PMD_PAGES), vma.end / PMD_PAGES);
            while let Some(pmd) = self.tables.next_present(from, end) {
                from = pmd + 1;
                if let PmdEntry::Table(table) = self.tables.entry(pmd) {
                    visit(pmd, &vma, table);
                }
            }
        }
    }

    /// Copies the present pages of part of a table into a fresh folio, which is mapped page by page.
    fn collapse_folio(&mut self, planned: &PlannedFolio) -> CopiedPages {
        let mut copied = CopiedPages::default();
        let mut nonzero = Vec::new();
        if let PmdEntry::Table(table) = self.tables.entry(planned.pmd) {
            for index in planned.entries() {
                nonzero.push(table.ptes[index].is_anon() && table.ptes[index].nonzero());
                copied.pages += u64::from(table.ptes[index].is_anon());
                copied.kept_by_others += u64::from(self.is_mapped_by_others(table, index));
            }
        }
        planned.pages().for_each(|page| self.drop_page(page));
        let folio = self.memory.get().folios.add(self.space, planned.pages(), false, false);
        for (index, page) in planned.pages().enumerate() {
            let pte = Pte::folio_page(nonzero[index], true, false);
            self.tables.set_folio_page(page, pte, FolioPage { folio, index: index as u32 });
        }
        self.note_resident();
        copied
    }
}

impl FullScan {
    fn add(&mut self, folio: &PlannedFolio, copied: CopiedPages) {
        self.collapsed_pmds += u64::from(folio.is_huge());
        self.collapsed_folios += u64::from(!folio.is_huge());
        self.copied_pages += copied.pages;
        self.freed_pages += copied.pages - copied.kept_by_others;
        self.zeroed_pages += (1 << folio.order) - copied.pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;
    use crate::{Access, Advice, KernelConfig, MapFlags, ThpConfig, ThpDisable, ThpMode};

    /// Four ranges that may be huge, of which the first three have 3, 0 and 512 small pages.
    fn kernel(work: KhugepagedWork) -> Kernel {
        let mut config = KernelConfig { thp: ThpConfig::new(ThpMode::Madvise), ..KernelConfig::default() };
        config.khugepaged.work = work;
        let mut kernel = Kernel::new(config);
        kernel.map(0..4 * PMD_PAGES, MapFlags::READ_WRITE).result.unwrap();
        write(&mut kernel, (0..3).chain(2 * PMD_PAGES..3 * PMD_PAGES));
        kernel.advise(0..4 * PMD_PAGES, Advice::HugePage).result.unwrap();
        kernel
    }

    #[test]
    fn what_is_predicted_is_what_a_scan_leaves() {
        let mut kernel = kernel(KhugepagedWork::Settled);
        let settled = kernel.khugepaged_settled().unwrap();
        let expected = FullScan {
            collapsed_pmds: 2,
            copied_pages: 515,
            freed_pages: 515,
            zeroed_pages: 509,
            ..FullScan::default()
        };
        assert_eq!(settled, KhugepagedSettled { rss_bytes: 4 << 20, huge_pages: 2, scan: expected });
        let faults = kernel.counters().faults;
        assert_eq!(kernel.khugepaged_scan(), expected);
        assert_eq!((kernel.resident_bytes(), kernel.huge_pages()), (settled.rss_bytes, settled.huge_pages));
        assert_eq!(kernel.counters().faults, faults);
        assert_eq!(kernel.khugepaged_scan(), FullScan::default(), "a second scan changes nothing");
        kernel.advise(0..1, Advice::DontNeed).result.unwrap();
        assert_eq!(kernel.rss_pages(), 2 * PMD_PAGES - 1, "the pages of zeros are resident");
    }

    #[test]
    fn nothing_is_predicted_unless_asked_for() {
        assert_eq!(kernel(KhugepagedWork::None).khugepaged_settled(), None);
    }

    #[test]
    fn the_process_setting_keeps_khugepaged_out() {
        for (disable, collapsed) in [(ThpDisable::All, 0), (ThpDisable::ExceptAdvised, 2), (ThpDisable::Off, 2)] {
            let mut kernel = kernel(KhugepagedWork::None);
            kernel.disable_thp(disable);
            assert_eq!(kernel.khugepaged_scan().collapsed_pmds, collapsed, "{disable:?}");
        }
    }

    #[test]
    fn pages_that_a_child_has_are_copied_and_not_freed() {
        let mut kernel = kernel(KhugepagedWork::None);
        let mut child = kernel.fork();
        let done = kernel.khugepaged_scan();
        let expected = FullScan { collapsed_pmds: 1, copied_pages: 3, zeroed_pages: 509, ..FullScan::default() };
        assert_eq!(done, expected);
        assert_eq!(child.khugepaged_scan(), FullScan::default(), "the child has accessed none of its pages");
        child.touch(1, Access::Read).unwrap();
        child.touch(2 * PMD_PAGES, Access::Read).unwrap();
        assert_eq!(child.khugepaged_scan().freed_pages, 3, "only the child has the first range now");
        drop(child);
        assert_eq!(kernel.khugepaged_scan().copied_pages, PMD_PAGES, "the child has exited");
    }
}

//! MADV_COLLAPSE, which immediately replaces PTE tables by huge pages (R12).

use std::ops::Range;

use super::Kernel;
use super::config::ThpAdvice;
use super::entry::{HugePage, PmdEntry, Pte, PteKind, PteTable};
use super::outcome::{Errno, Install, InstallKind, InstallRun, append};
use super::process_policy::ThpDisable;
use super::rules::Collapse;
use super::span::{PMD_PAGES, pages_of};
use super::vma::Vma;

impl Kernel {
    /// Collapses the whole PMD ranges of `part`, which is inside one mapping. It ignores the THP modes and (from Linux
    /// 6.18 on) the mapping's protection, but not NOHUGEPAGE or a process-wide THP disable. It charges no fault. It
    /// stops at a PMD range without a PTE table, or with a guard page.
    ///
    /// EINVAL if any PMD range of `part` is not huge afterwards, if the mapping was never written or covers no whole
    /// PMD range, or if `part` starts and ends inside the same PMD range.
    pub(super) fn collapse(
        &mut self,
        vma: &Vma,
        part: &Range<u64>,
        installs: &mut Vec<InstallRun>,
    ) -> Result<(), Errno> {
        let last_pmd_start = (vma.end / PMD_PAGES).checked_sub(1).map(|pmd| pages_of(pmd).start);
        let holds_pmd = last_pmd_start.is_some_and(|start| vma.start <= start);
        // `ExceptAdvised` does not apply to collapses.
        let is_forbidden = vma.flags.thp == ThpAdvice::NoHuge || self.thp_disable == ThpDisable::All;
        if vma.flags.hugetlb || is_forbidden || vma.anon.is_none() || !holds_pmd {
            return Err(Errno::Invalid);
        }
        let (first, end) = (part.start.div_ceil(PMD_PAGES), part.end / PMD_PAGES);
        let mut huge = 0;
        for pmd in first..end {
            match self.tables.entry(pmd) {
                PmdEntry::Table(table) => {
                    if !self.may_collapse(vma, table) {
                        continue;
                    }
                    if table.ptes.iter().any(|pte| pte.kind() == PteKind::Guard) {
                        break;
                    }
                    append(installs, self.collapse_pmd(pmd));
                }
                // There is nothing to collapse. The call ends here if a PMD table exists; otherwise it skips the range.
                PmdEntry::None if self.tables.has_pmd_table(pmd) => break,
                PmdEntry::None => continue,
                PmdEntry::Huge(_) | PmdEntry::HugeZero | PmdEntry::Hugetlb { .. } => {}
            }
            huge += 1;
        }
        if end.checked_sub(first) == Some(huge) { Ok(()) } else { Err(Errno::Invalid) }
    }

    /// Whether this kernel version collapses the PMD range of this table.
    fn may_collapse(&self, vma: &Vma, table: &PteTable) -> bool {
        let is_writable = |pte: &Pte| pte.is_anon() && !pte.protected();
        self.config.rules.collapse == Collapse::NeedsPteTable
            || vma.flags.protection.is_writable() && table.ptes.iter().any(is_writable)
    }

    /// Copies the pages that a PTE table maps into a fresh huge page. The table stays deposited under the huge page.
    fn collapse_pmd(&mut self, pmd: u64) -> Install {
        let mut huge = HugePage::new();
        if let PmdEntry::Table(table) = self.tables.entry(pmd) {
            for (index, pte) in table.ptes.iter().enumerate() {
                huge.set_nonzero(index, pte.nonzero());
                self.operations.collapsed_present_pages += u64::from(pte.is_anon());
                if let Some(folio_page) = table.folio_page(index) {
                    self.memory.get().folios.unmap(folio_page.folio, self.space, folio_page.index);
                } else if let Some(frame) = table.frame(index) {
                    self.memory.get().frames.release(frame);
                }
            }
        }
        self.tables.replace(pmd, PmdEntry::Huge(huge));
        self.counters.count_install(InstallKind::Thp);
        self.operations.collapsed_pmds += 1;
        self.note_resident();
        Install { kind: InstallKind::Thp, first_page: pages_of(pmd).start, pages: PMD_PAGES }
    }
}

//! MADV_COLLAPSE, which immediately replaces PTE tables by huge pages (R12).

use std::ops::Range;

use super::Kernel;
use super::config::ThpAdvice;
use super::entry::{FolioPage, HugePage, PmdEntry, Pte, PteKind, PteTable};
use super::outcome::{Errno, Install, InstallKind, InstallRun, append};
use super::process_policy::ThpDisable;
use super::rules::{Collapse, CollapseInsideRange, CollapseWithoutTable};
use super::span::{PMD_PAGES, pages_of};
use super::vma::Vma;

/// Present pages that a collapse copies into a huge page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopiedPages {
    pub pages: u64,
    /// Of these, those that another process maps. The others are freed.
    pub kept_by_others: u64,
}

impl Kernel {
    /// Collapses the whole PMD ranges of `part`, which is inside one mapping. It ignores the THP modes and (from Linux
    /// 6.18 on) the mapping's protection, but not NOHUGEPAGE or a process-wide THP disable. It charges no fault. It
    /// stops at a PMD range with a guard page and, before Linux 7.2, at one without a PTE table.
    ///
    /// EINVAL if any PMD range of `part` is not huge afterwards, if the mapping was never written or covers no whole
    /// PMD range, or before Linux 7.2 if `part` starts and ends inside the same PMD range.
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
                    if !self.may_charge_collapse() {
                        return Err(Errno::Busy);
                    }
                    let copied = self.collapse_pmd(pmd);
                    self.counters.count_installs(InstallKind::Thp, 1);
                    self.operations.collapsed_pmds += 1;
                    self.operations.collapsed_present_pages += copied.pages;
                    let first_page = pages_of(pmd).start;
                    append(installs, Install { kind: InstallKind::Thp, first_page, pages: PMD_PAGES }.into());
                }
                // There is nothing to collapse. Before Linux 7.2 the call ends here if a PMD table exists.
                PmdEntry::None if self.ends_collapse(pmd) => break,
                PmdEntry::None => continue,
                PmdEntry::Huge(_) | PmdEntry::HugeZero | PmdEntry::Hugetlb { .. } => {}
            }
            huge += 1;
        }
        let whole = match self.config.rules.collapse_inside_range {
            CollapseInsideRange::Einval => end.checked_sub(first),
            CollapseInsideRange::Succeeds => Some(end.saturating_sub(first)),
        };
        if whole == Some(huge) { Ok(()) } else { Err(Errno::Invalid) }
    }

    /// Whether MADV_COLLAPSE ends at a PMD range without a table.
    fn ends_collapse(&self, pmd: u64) -> bool {
        self.config.rules.collapse_without_table == CollapseWithoutTable::Ends && self.tables.has_pmd_table(pmd)
    }

    /// Whether this kernel version collapses the PMD range of this table.
    pub(super) fn may_collapse(&self, vma: &Vma, table: &PteTable) -> bool {
        let is_writable = |pte: &Pte| pte.is_anon() && !pte.protected();
        self.config.rules.collapse == Collapse::NeedsPteTable
            || vma.flags.protection.is_writable() && table.ptes.iter().any(is_writable)
    }

    /// Copies the pages that a PTE table maps into a fresh huge page. The table stays deposited under the huge page.
    pub(super) fn collapse_pmd(&mut self, pmd: u64) -> CopiedPages {
        let (mut huge, mut copied) = (HugePage::new(), CopiedPages::default());
        if let PmdEntry::Table(table) = self.tables.entry(pmd) {
            for (index, pte) in table.ptes.iter().enumerate() {
                huge.set_nonzero(index, pte.nonzero());
                copied.pages += u64::from(pte.is_anon());
                copied.kept_by_others += u64::from(self.is_mapped_by_others(table, index));
                if let Some(folio_page) = table.folio_page(index) {
                    self.memory.get().folios.unmap(folio_page.folio, self.space, folio_page.index);
                } else if let Some(frame) = table.frame(index) {
                    self.memory.get().frames.release(frame);
                }
            }
        }
        self.tables.replace(pmd, PmdEntry::Huge(huge));
        self.note_resident();
        copied
    }

    /// Whether another process maps the page at `index`.
    pub(super) fn is_mapped_by_others(&self, table: &PteTable, index: usize) -> bool {
        let memory = self.memory.get();
        match (table.folio_page(index), table.frame(index)) {
            (Some(FolioPage { folio, index }), _) => memory.folios.get(folio).is_mapped_by_others(self.space, index),
            (None, Some(frame)) => memory.frames.is_shared(frame),
            (None, None) => false,
        }
    }
}

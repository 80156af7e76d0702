//! Populate: MAP_POPULATE and MADV_POPULATE_READ/WRITE make pages present without a trap (R9c, R24b).

use std::ops::Range;

use super::Kernel;
use super::entry::{Access, Content, PmdEntry, PteKind, TableOrigin};
use super::fault::FaultCause;
use super::obstacles::Obstacles;
use super::outcome::{Errno, Install, InstallRun, Outcome, append};
use super::rules::HugetlbPopulateFaults;
use super::span::{index_of, pages_of, pmd_of};
use super::vma::Vma;

/// Which protections permit a populate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PopulateCheck {
    /// `MADV_POPULATE_READ` needs `PROT_READ`, and `MADV_POPULATE_WRITE` needs `PROT_WRITE`.
    Exact,
    /// mlock and `MAP_POPULATE` accept every protection that the hardware accepts (`populate_vma_page_range` in
    /// mm/gup.c).
    AnyAccess,
}

impl PopulateCheck {
    fn allows(self, vma: &Vma, access: Access) -> bool {
        vma.allows(access) && (self == Self::AnyAccess || access.writes() || vma.flags.protection.has_read())
    }
}

/// One install by a call that populates memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// The page that was populated.
    pub page: u64,
    /// What was installed.
    pub install: Install,
    /// What kept a huge page out.
    pub obstacles: Obstacles,
}

impl Kernel {
    /// From now on keeps what calls populate, for [`Kernel::take_populated`]. A forked child does, too.
    pub fn keep_populated(&mut self) {
        self.populated.get_or_insert_default();
    }

    /// What calls populated since the last time, in order. Empty without [`Kernel::keep_populated`].
    pub fn take_populated(&mut self) -> Vec<Populated> {
        self.populated.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Makes every page of `range` present, page by page, as if it were accessed. Stops at a hole (ENOMEM), at a
    /// protection that forbids the access (EINVAL), or at an empty hugetlb pool or a guard page (EFAULT). Pages
    /// populated before the error stay (R24). Mappings that are not modelled get PTE tables.
    pub(super) fn populate(&mut self, range: &Range<u64>, access: Access, check: PopulateCheck) -> Outcome {
        let mut installs = Vec::new();
        let result = self.populate_pages(range, access, check, &mut installs);
        Outcome { result, installs }
    }

    fn populate_pages(
        &mut self,
        range: &Range<u64>,
        access: Access,
        check: PopulateCheck,
        installs: &mut Vec<InstallRun>,
    ) -> Result<(), Errno> {
        let mut page = range.start;
        while page < range.end {
            let vma = self.vmas.covering(page).ok_or(Errno::NoMemory)?;
            if !check.allows(&vma, access) {
                return Err(Errno::Invalid);
            }
            if vma.is_unmodelled() {
                self.tables.table_because_of(TableOrigin::Unmodelled, pmd_of(page));
                page = pages_of(pmd_of(page)).end.min(vma.end);
                continue;
            }
            if self.populated.is_none()
                && let Some(run) = self.fault_absent(&vma, &(page..range.end), access, FaultCause::Populate)
            {
                append(installs, run);
                page += run.pages;
                continue;
            }
            if !self.mark_present(page, access) {
                let obstacles = self.populated.is_some().then(|| self.obstacles(page));
                let install = self.fault(&vma, page, access, FaultCause::Populate);
                if let Some(install) = install.map_err(|_| Errno::Fault)? {
                    if let (Some(populated), Some(obstacles)) = (&mut self.populated, obstacles) {
                        populated.push(Populated { page, install, obstacles });
                    }
                    if vma.flags.hugetlb
                        && self.config.rules.hugetlb_populate_faults == HugetlbPopulateFaults::NotCharged
                    {
                        self.counters.faults -= 1;
                    }
                    append(installs, install.into());
                }
            }
            page = match self.tables.entry(pmd_of(page)) {
                PmdEntry::None | PmdEntry::Table(_) => page + 1,
                PmdEntry::Huge(_) | PmdEntry::HugeZero | PmdEntry::Hugetlb { .. } => pages_of(pmd_of(page)).end,
            };
        }
        Ok(())
    }

    /// Whether a page is already present for this access. A populate for writing sets dirty bits as the kernel does:
    /// for a page of a large folio it makes the folio dirty (R9c). Contents do not change.
    fn mark_present(&mut self, page: u64, access: Access) -> bool {
        let writes = access.writes();
        match self.tables.entry_mut(pmd_of(page)) {
            None | Some(PmdEntry::None) => false,
            Some(PmdEntry::HugeZero) => !writes,
            Some(PmdEntry::Hugetlb { writable, .. }) => *writable || !writes,
            Some(PmdEntry::Huge(huge)) if writes && huge.protected => false,
            Some(PmdEntry::Huge(huge)) => {
                huge.dirty |= writes;
                huge.old = false;
                true
            }
            Some(PmdEntry::Table(table)) => {
                let folio_page = table.folio_page(index_of(page));
                let pte = &mut table.ptes[index_of(page)];
                if writes && pte.protected() {
                    return false;
                }
                match pte.kind() {
                    PteKind::None | PteKind::Guard => return false,
                    PteKind::Zero => return !writes,
                    PteKind::Base if writes => pte.dirty_page(),
                    PteKind::Base => {}
                    // If the entry is clean, the folio becomes dirty. If it is dirty, nothing changes.
                    PteKind::FolioPage => {
                        if let Some(folio_page) = folio_page
                            && writes
                            && !pte.dirty()
                        {
                            self.memory.get().folios.get_mut(folio_page.folio).dirty = true;
                        }
                    }
                }
                // The kernel marks the page as referenced.
                table.set_old(index_of(page), false);
                true
            }
        }
    }
}

/// The access that a populate for writing performs: the pages it installs contain zeros.
pub(super) const POPULATE_WRITE: Access = Access::Write(Content::Zero);

//! Guard pages: MADV_GUARD_INSTALL and MADV_GUARD_REMOVE (R32). glibc 2.42 uses them below thread stacks.

use std::ops::Range;

use super::Kernel;
use super::entry::{Pte, PteKind, TableOrigin};
use super::lock::Locked;
use super::outcome::Errno;
use super::rules::GuardPages;
use super::span::{clip, index_of, pmds_touching};
use super::vma::Vma;
use super::zap::ZapReason;

impl Kernel {
    /// Replaces the pages of `part`, which is inside one mapping, by guard pages. That allocates page tables, and the
    /// mapping gets an anon_vma (R19). Files get the tables only.
    pub(super) fn install_guards(&mut self, vma: &Vma, part: &Range<u64>) -> Result<(), Errno> {
        if vma.flags.locked != Locked::No {
            return Err(Errno::Invalid);
        }
        self.check_guards(vma)?;
        if !vma.is_unmodelled() {
            self.vmas.prepare_anon(vma);
            self.zap(part, ZapReason::GuardInstall);
        }
        for pmd in pmds_touching(part) {
            let table = self.tables.table_because_of(TableOrigin::GuardPage, pmd);
            if !vma.is_unmodelled() {
                clip(part, pmd).for_each(|page| table.ptes[index_of(page)] = Pte::GUARD);
            }
        }
        Ok(())
    }

    /// Removes the guard pages of `part`, which is inside one mapping. Page tables stay.
    pub(super) fn remove_guards(&mut self, vma: &Vma, part: &Range<u64>) -> Result<(), Errno> {
        self.check_guards(vma)?;
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            let Some(table) = self.tables.table_mut(pmd) else { continue };
            for pte in clip(part, pmd).map(index_of) {
                if table.ptes[pte].kind() == PteKind::Guard {
                    table.ptes[pte] = Pte::NONE;
                }
            }
        }
        Ok(())
    }

    /// EINVAL if the version or the kind of mapping allows no guard pages.
    fn check_guards(&self, vma: &Vma) -> Result<(), Errno> {
        let is_allowed = match self.config.rules.guard_pages {
            GuardPages::Unsupported => false,
            GuardPages::Anonymous => !vma.is_unmodelled(),
            GuardPages::AnonymousAndFiles => true,
        };
        if is_allowed && !vma.flags.hugetlb { Ok(()) } else { Err(Errno::Invalid) }
    }
}

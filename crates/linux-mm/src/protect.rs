//! mprotect (R18b, R23, R24, R26).

use std::ops::Range;

use super::Kernel;
use super::entry::{PmdEntry, Pte};
use super::lock::Locked;
use super::outcome::Errno;
use super::rules::{MprotectCommitCharge, MprotectPmdDirty, MprotectPteDirty, WriteAfterMprotect};
use super::span::{clip, index_of, pmds_touching};
use super::vma::{Protection, Vma, VmaFlags};

impl Kernel {
    /// mprotect. Pages stay mapped. A huge page is split only if a mapping now ends inside it (R23).
    ///
    /// ENOMEM at the first hole, after the part before it has been changed (R24), or if a split would exceed
    /// `max_map_count` (R14).
    pub fn protect(&mut self, range: Range<u64>, protection: Protection) -> Result<(), Errno> {
        if range.start > range.end {
            return Err(Errno::NoMemory);
        }
        self.for_each_mapping_until_hole(&range, |kernel, vma, part| kernel.protect_part(vma, part, protection))
    }

    /// Calls `each` for the part of `range` in each mapping, up to the first hole or error.
    ///
    /// # Errors
    /// ENOMEM at a hole, or the first error.
    pub(super) fn for_each_mapping_until_hole(
        &mut self,
        range: &Range<u64>,
        mut each: impl FnMut(&mut Kernel, &Vma, &Range<u64>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = range.start;
        while at < range.end {
            let vma = self.vmas.covering(at).ok_or(Errno::NoMemory)?;
            let part = at..vma.end.min(range.end);
            each(self, &vma, &part)?;
            at = part.end;
        }
        Ok(())
    }

    fn protect_part(&mut self, vma: &Vma, part: &Range<u64>, protection: Protection) -> Result<(), Errno> {
        if vma.flags.protection == protection {
            return Ok(());
        }
        self.change_flags(vma, part, reprotected(vma, protection, self.config.rules.mprotect_commit_charge))?;
        if vma.flags.hugetlb {
            self.write_protect_hugetlb(part);
            return Ok(());
        }
        let was_writable = vma.flags.protection.is_writable();
        if was_writable && self.config.rules.mprotect_pmd_dirty == MprotectPmdDirty::Lost {
            self.clear_huge_dirty(part);
        }
        if self.config.rules.mprotect_pte_dirty == MprotectPteDirty::PerBatch {
            self.spread_dirty(part, vma.flags.protection);
        }
        if self.config.rules.write_after_mprotect != WriteAfterMprotect::NoFault {
            self.write_protect(part, protection);
        }
        if vma.flags.locked != Locked::No && !was_writable && protection.is_writable() {
            // mprotect of locked memory populates it. This copies pages that the first write would copy (R29a).
            let _ = self.populate_locked(part);
        }
        Ok(())
    }

    /// Write-protects present pages, for kernel versions whose mprotect does not restore write permission.
    fn write_protect(&mut self, part: &Range<u64>, now: Protection) {
        let is_by_entry = self.config.rules.write_after_mprotect == WriteAfterMprotect::FaultIfClean;
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            match self.tables.entry_mut(pmd) {
                Some(PmdEntry::Huge(huge)) => huge.protected = true,
                Some(PmdEntry::Table(table)) => {
                    let pages = clip(part, pmd);
                    let first = index_of(pages.start);
                    let entries = &mut table.ptes[first..first + (pages.end - pages.start) as usize];
                    let anonymous = entries.iter_mut().filter(|pte| pte.is_anon());
                    if !is_by_entry {
                        anonymous.for_each(|pte| pte.set_protected(true));
                    } else if now.is_writable() {
                        anonymous.filter(|pte| !pte.entry_dirty()).for_each(Pte::protect_exclusive);
                    }
                }
                _ => {}
            }
        }
    }

    /// R26: clears the dirty bit of writable huge entries.
    fn clear_huge_dirty(&mut self, part: &Range<u64>) {
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            if let Some(PmdEntry::Huge(huge)) = self.tables.entry_mut(pmd) {
                // A write-protected entry stores its dirty state in another bit, which is not lost.
                huge.dirty &= huge.protected;
            }
        }
    }

    /// R26: mprotect changes the entries of a large folio in batches, and one dirty entry makes its whole batch dirty.
    /// In a mapping that was writable `before`, a fork may have left some entries write-protected. There a batch also
    /// ends where write protection changes.
    fn spread_dirty(&mut self, part: &Range<u64>, before: Protection) {
        let pmds = pmds_touching(part);
        let mut from = pmds.start;
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            let Some(PmdEntry::Table(table)) = self.tables.entry_mut(pmd) else { continue };
            let pages = clip(part, pmd);
            let mut at = index_of(pages.start);
            let end = at + (pages.end - pages.start) as usize;
            while at < end {
                let batch = table.batch(at, end).max(1);
                let run = if before.is_writable() { same_protection_run(&table.ptes[at..at + batch]) } else { batch };
                let entries = &mut table.ptes[at..at + run];
                let dirty = entries.iter().any(|pte| pte.dirty());
                entries.iter_mut().for_each(|pte| pte.set_dirty(dirty));
                at += run;
            }
        }
    }
}

/// Number of leading entries with the same write protection.
fn same_protection_run(entries: &[Pte]) -> usize {
    entries.iter().take_while(|pte| pte.protected() == entries[0].protected()).count()
}

/// The flags of a mapping after a change of protection. Memory that becomes writable is charged. From Linux 6.8 on,
/// memory that was never written is uncharged when it stops being writable (R18b).
fn reprotected(vma: &Vma, protection: Protection, charge: MprotectCommitCharge) -> VmaFlags {
    let flags = vma.flags;
    let account = if protection.is_writable() {
        flags.account || !(flags.hugetlb || flags.noreserve)
    } else {
        flags.account && (vma.anon.is_some() || vma.is_unmodelled() || charge == MprotectCommitCharge::Kept)
    };
    VmaFlags { protection, account, ..flags }
}

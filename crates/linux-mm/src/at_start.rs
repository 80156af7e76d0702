//! An address space that is known from some moment on: its mappings and pages are put in place, without calls and faults.

use std::ops::Range;

use super::Kernel;
use super::config::ThpAdvice;
use super::entry::{HugePage, PmdEntry, Pte, TableOrigin};
use super::lock::Locked;
use super::map::{Backing, MapFlags};
use super::outcome::Errno;
use super::span::{PMD_PAGES, index_of, pmd_of, pmds_touching};
use super::vma::{Vma, VmaFlags};
use super::vma_advice::OtherAdvice;

/// What calls did to a mapping before it was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownTraits {
    /// `MADV_HUGEPAGE`.
    pub huge_page: bool,
    /// `MADV_NOHUGEPAGE`.
    pub no_huge_page: bool,
    /// mlock and its like.
    pub locked: Locked,
    /// VM_ACCOUNT: charged to the commit limit.
    pub accounted: bool,
    /// `MADV_DONTFORK`.
    pub dont_fork: bool,
    /// `MADV_WIPEONFORK`.
    pub wipe_on_fork: bool,
    /// `MADV_DONTDUMP`.
    pub dont_dump: bool,
    /// `MADV_RANDOM`.
    pub random: bool,
    /// `MADV_SEQUENTIAL`.
    pub sequential: bool,
    /// `MADV_MERGEABLE`.
    pub mergeable: bool,
}

/// The state of pages that were there before they were observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownPages {
    /// Small pages of this process.
    Small,
    /// Small pages that another process maps, too: a write copies them. That process is one that is known to have shared
    /// pages at the same addresses ([`Kernel::beside`]); otherwise one outside the model, which has them until the end.
    SmallShared,
    /// Small entries that map pages of a huge page, which another process maps as a whole: as [`KnownPages::SmallShared`], and
    /// the huge page is the one that is known there as [`KnownPages::HugeShared`].
    PartShared,
    /// Small pages, given up with `MADV_FREE`.
    SmallLazy,
    /// Huge pages of this process, or pages of the hugetlb pool.
    Huge,
    /// Huge pages that another process maps, too.
    HugeShared,
    /// Huge pages, given up with `MADV_FREE`.
    HugeLazy,
    /// The zero page.
    Zero,
    /// The huge zero page.
    HugeZero,
    /// Pages in swap. The model has no swap: the next touch installs a page. Until then the page table keeps huge pages
    /// out.
    Swapped,
    /// Guard pages.
    Guard,
}

impl KnownPages {
    /// The same memory in pages of 4 KiB.
    #[must_use]
    pub fn in_small_pages(self) -> Self {
        match self {
            Self::Huge => Self::Small,
            Self::HugeShared | Self::PartShared => Self::SmallShared,
            Self::HugeLazy => Self::SmallLazy,
            Self::HugeZero => Self::Zero,
            small => small,
        }
    }
}

impl Kernel {
    /// A mapping that is there already, with the traits that calls gave it. Nothing is populated.
    ///
    /// # Errors
    /// As for [`Kernel::map`].
    pub fn know_mapping(&mut self, range: Range<u64>, flags: MapFlags, traits: KnownTraits) -> Result<(), Errno> {
        self.make_room(&range)?;
        if flags.hugetlb && !flags.noreserve {
            self.memory.get().pool.reserve((range.end - range.start) / PMD_PAGES)?;
        }
        let thp = match (traits.huge_page, traits.no_huge_page) {
            (true, _) => ThpAdvice::Huge,
            (false, true) => ThpAdvice::NoHuge,
            (false, false) => ThpAdvice::None,
        };
        let base = flags.vma_flags(&self.config);
        let flags = VmaFlags {
            thp,
            account: traits.accounted,
            locked: traits.locked,
            other: OtherAdvice::known(base.other, &traits),
            device: (flags.backing == Backing::ZeroDevice).then(|| self.vmas.new_file_id()),
            ..base
        };
        self.vmas.insert_known(&range, flags);
        Ok(())
    }

    /// Pages in a mapping that are there already, all in one state. No fault is counted. Huge states need whole, aligned
    /// 2 MiB ranges inside one mapping; parts of such ranges are left out, and so are pages without a modelled mapping.
    /// A page is assumed to hold bytes other than zero.
    pub fn know_pages(&mut self, pages: Range<u64>, state: KnownPages) {
        for vma in self.vmas.overlapping(&pages) {
            let part = vma.start.max(pages.start)..vma.end.min(pages.end);
            if vma.is_unmodelled() {
                for pmd in pmds_touching(&part) {
                    self.tables.table_because_of(TableOrigin::Unmodelled, pmd);
                }
                continue;
            }
            let is_anon = !matches!(state, KnownPages::Zero | KnownPages::Guard) && !vma.flags.hugetlb;
            if is_anon {
                self.vmas.prepare_anon(&vma);
            }
            match state {
                KnownPages::Huge | KnownPages::HugeShared | KnownPages::HugeLazy | KnownPages::HugeZero => {
                    let whole = part.start.div_ceil(PMD_PAGES)..part.end / PMD_PAGES;
                    whole.for_each(|pmd| self.know_pmd(&vma, pmd, state));
                }
                _ => part.clone().for_each(|page| self.know_page(page, state)),
            }
            if self.may_be_scanned(&vma) {
                self.counters.collapsible_pages += self.small_pages(&part);
            }
        }
        self.note_resident();
        self.note_charge();
    }

    /// The page is present, and a write to it faults once, although no other process maps it: it was shared before it was
    /// observed. No effect on pages that are absent or protected already.
    pub fn know_write_protected(&mut self, page: u64) {
        match self.tables.entry_mut(pmd_of(page)) {
            Some(PmdEntry::Huge(huge)) => huge.protected = true,
            Some(PmdEntry::Table(table)) if table.ptes[index_of(page)].is_anon() => {
                table.ptes[index_of(page)].protect_exclusive();
            }
            _ => {}
        }
    }

    fn know_pmd(&mut self, vma: &Vma, pmd: u64, state: KnownPages) {
        if !matches!(self.tables.entry(pmd), PmdEntry::None) {
            return;
        }
        if vma.flags.hugetlb {
            return self.know_hugetlb(vma, pmd);
        }
        if state == KnownPages::HugeZero {
            self.tables.replace(pmd, PmdEntry::HugeZero);
            return;
        }
        let mut huge = HugePage::new();
        (0..PMD_PAGES as usize).for_each(|index| huge.set_nonzero(index, true));
        match state {
            KnownPages::HugeLazy => {
                (huge.dirty, huge.lazy) = (false, true);
                self.note_lazily_freed(pmd * PMD_PAGES);
            }
            KnownPages::HugeShared => {
                huge.folio = Some(self.memory.get().folios.share_known(pmd, self.space));
                huge.protected = true;
            }
            _ => {}
        }
        self.tables.replace(pmd, PmdEntry::Huge(huge));
    }

    fn know_page(&mut self, page: u64, state: KnownPages) {
        if !matches!(self.tables.entry(pmd_of(page)), PmdEntry::None | PmdEntry::Table(_)) {
            return;
        }
        match state {
            KnownPages::Zero => self.tables.set_pte(page, Pte::ZERO),
            KnownPages::Guard => self.tables.set_pte(page, Pte::GUARD),
            KnownPages::Swapped => _ = self.tables.table_for(pmd_of(page)),
            KnownPages::SmallLazy => {
                self.tables.set_pte(page, Pte::base(true, false, true));
                self.note_lazily_freed(page);
            }
            KnownPages::SmallShared => {
                let mut pte = Pte::base(true, true, false);
                pte.set_protected(true);
                let has_others = self.memory.has_others();
                let mut memory = self.memory.get();
                let frame = if has_others { memory.frames.share_known(page) } else { memory.frames.share(None) };
                drop(memory);
                self.tables.set_numbered(page, pte, frame);
            }
            KnownPages::PartShared => {
                let folio_page = self.memory.get().folios.share_known_page(page, self.space);
                self.tables.set_folio_page(page, Pte::folio_page(true, true, true), folio_page);
            }
            _ => self.tables.set_pte(page, Pte::base(true, true, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Content, KernelConfig, PAGE_BYTES};

    const WRITE: Access = Access::Write(Content::NonZero);

    /// Processes that were there, each with 100 small pages and a huge page that the others have, too.
    fn relatives(number: usize) -> Vec<Kernel> {
        let config = KernelConfig { memory_limit_bytes: Some(1 << 30), ..KernelConfig::default() };
        let mut all = vec![Kernel::new(config)];
        all.extend((1..number).map(|_| all[0].beside()).collect::<Vec<_>>());
        for kernel in &mut all {
            let traits = KnownTraits { huge_page: true, accounted: true, ..KnownTraits::default() };
            kernel.know_mapping(0..2 * PMD_PAGES, MapFlags::READ_WRITE, traits).unwrap();
            kernel.know_pages(0..100, KnownPages::SmallShared);
            kernel.know_pages(PMD_PAGES..2 * PMD_PAGES, KnownPages::HugeShared);
        }
        all
    }

    fn charged(kernel: &Kernel) -> u64 {
        kernel.charged_bytes() / PAGE_BYTES
    }

    #[test]
    fn what_relatives_share_is_charged_once_and_copied_while_another_has_it() {
        let mut all = relatives(3);
        let own = charged(&all[0]);
        // Each has tables and a record of its mapping.
        assert!((100 + PMD_PAGES..100 + PMD_PAGES + 40).contains(&own), "{own}");
        all[1].touch(3, WRITE).unwrap();
        assert_eq!(charged(&all[0]), own + 1, "a copy");
        all[2].touch(3, WRITE).unwrap();
        assert_eq!(charged(&all[0]), own + 2, "another");
        let before = all[0].counters().reuses;
        all[0].touch(3, WRITE).unwrap();
        assert_eq!((charged(&all[0]), all[0].counters().reuses - before), (own + 2, 1), "nobody else has it any more");
        all.truncate(1);
        assert_eq!(all[0].rss_pages(), 100 + PMD_PAGES);
        assert!(charged(&all[0]) <= own, "the others have exited");
    }

    #[test]
    fn a_process_alone_shares_with_one_outside_until_the_end() {
        let mut kernel = relatives(1).remove(0);
        let (own, installs) = (charged(&kernel), kernel.counters().installs_total());
        kernel.touch(3, WRITE).unwrap();
        assert_eq!((charged(&kernel), kernel.counters().installs_total()), (own + 1, installs + 1), "a copy");
    }

    /// One process maps a huge page as a whole, and another 300 of its pages.
    #[test]
    fn a_huge_page_that_another_process_maps_in_part_is_charged_once() {
        let pages = PMD_PAGES..2 * PMD_PAGES;
        for (whole, part) in [(0, 1), (1, 0)] {
            let first = Kernel::new(KernelConfig { memory_limit_bytes: Some(1 << 30), ..KernelConfig::default() });
            let mut all = vec![first.beside(), first];
            all.iter_mut().enumerate().for_each(|(index, kernel)| {
                kernel.know_mapping(pages.clone(), MapFlags::READ_WRITE, KnownTraits::default()).unwrap();
                match index == whole {
                    true => kernel.know_pages(pages.clone(), KnownPages::HugeShared),
                    false => kernel.know_pages(pages.start..pages.start + 300, KnownPages::PartShared),
                }
            });
            // Each has a page table of each level, and a record of its mapping.
            let mut expected = PMD_PAGES + 2 * 4;
            assert_eq!(charged(&all[0]), expected, "process {whole} maps it as a whole");
            assert_eq!((all[whole].rss_pages(), all[part].rss_pages()), (PMD_PAGES, 300));
            for (process, page) in [(part, 3), (whole, 4)] {
                let installed = all[process].touch(pages.start + page, WRITE);
                assert_eq!(installed.map(|install| install.map(|install| install.pages)), Ok(Some(1)), "a copy");
                expected += 1;
                assert_eq!(charged(&all[0]), expected);
            }
            all.remove(whole);
            expected -= 1 + 4;
            assert_eq!(charged(&all[0]), expected, "all of it stays charged for the pages that the other one maps");
        }
    }
}

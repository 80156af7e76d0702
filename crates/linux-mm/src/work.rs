//! The kernel's work besides installs: pages dropped, marked, moved, collapsed and copied. Each count has a cost of its
//! own (crate `hksim-cost-model`).

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Kernel;
use super::config::PMD_ORDER;
use super::fault::FaultCause;
use super::outcome::{Install, InstallKind};
use super::refaults::RefaultsByKind;
use super::span::{PAGE_BYTES, PMD_PAGES};

/// Counts of page operations since the start. Pages are 4 KiB unless called huge (2 MiB). A part of a huge page counts as
/// pages: the kernel splits the huge page first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageOperations {
    /// Single pages installed by populating calls.
    pub populated_pages: u64,
    /// Pages in folios larger than a page and smaller than a huge page, however they were installed.
    pub mthp_pages: u64,
    /// These folios by their size.
    #[serde(default)]
    pub mthp_by_bytes: FoliosBySize,
    /// PMD ranges that `MADV_COLLAPSE` made huge.
    pub collapsed_pmds: u64,
    /// Pages that were present in those ranges. The kernel copies them.
    pub collapsed_present_pages: u64,
    /// Pages dropped by `MADV_DONTNEED`, or replaced by guard pages.
    pub madv_dontneed_pages: u64,
    /// Of those, pages of a larger folio, such as a huge page of which a part was dropped. The kernel drops the pages of a
    /// folio together.
    #[serde(default)]
    pub madv_dontneed_folio_pages: u64,
    /// Huge pages dropped whole by `MADV_DONTNEED`, or replaced by guard pages.
    pub madv_dontneed_huge_pages: u64,
    /// Pages marked by `MADV_FREE`.
    pub madv_free_pages: u64,
    /// Of those, pages that were already marked: the kernel moves a page to another list only once.
    pub madv_free_repeated_pages: u64,
    /// Huge pages marked whole by `MADV_FREE`.
    pub madv_free_huge_pages: u64,
    /// Of those, huge pages that were already marked.
    pub madv_free_repeated_huge_pages: u64,
    /// Writes to pages and huge pages that are present and whose entry is clean, as `MADV_FREE` leaves it. They raise no
    /// fault: the processor walks the page tables and marks the entry as dirty.
    #[serde(default)]
    pub clean_entries_written: u64,
    /// Pages whose translations `madvise` or `munmap` invalidated one by one because it marked or dropped them, and pages between
    /// them: an x86 kernel does so for up to 33 pages from the first to the last. For more it invalidates all of the process.
    /// Excludes other calls, and faults that copy a page.
    #[serde(default)]
    pub flushed_pages: u64,
    /// Calls that dropped any pages: `madvise`, `munmap`, and other calls that unmap. Excludes those that drop only hugetlb pages.
    #[serde(default)]
    pub dropping_calls: u64,
    /// Pages removed by `munmap`, by a mapping over them, or by a heap or mapping that shrinks.
    pub unmapped_pages: u64,
    /// Of those, pages of a larger folio.
    #[serde(default)]
    pub unmapped_folio_pages: u64,
    /// Huge pages removed that way.
    pub unmapped_huge_pages: u64,
    /// hugetlb pages removed that way, or by `MADV_DONTNEED`.
    pub unmapped_hugetlb_pages: u64,
    /// PTE tables that `mremap` moved whole, with all their pages.
    pub mremap_pte_tables: u64,
    /// Pages that `mremap` moved one by one.
    #[serde(default)]
    pub mremap_pages: u64,
    /// Huge pages that `mremap` moved.
    pub mremap_huge_pages: u64,
    /// Page tables allocated by accesses, except those deposited with a huge page.
    pub page_tables_allocated: u64,
    /// Forks.
    #[serde(default)]
    pub forks: u64,
    /// Single pages whose entries the forks copied.
    #[serde(default)]
    pub forked_pages: u64,
    /// Of those, pages of a larger folio: the kernel shares all neighbours of a folio at once.
    #[serde(default)]
    pub forked_folio_pages: u64,
    /// Pages copied by a write, because another process maps them or the kernel cannot tell that none does.
    #[serde(default)]
    pub copied_pages: u64,
    /// Of those, first writes to a huge page that another process maps: its entry is split.
    #[serde(default)]
    pub copies_with_split: u64,
}

/// Folios between 8 KiB and 1 MiB, by their size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoliosBySize([u64; PMD_ORDER]);

impl FoliosBySize {
    /// Adds a folio of a number of pages, which is a power of two below 512.
    fn add(&mut self, pages: u64) {
        if let Some(folios) = self.0.get_mut(pages.ilog2() as usize) {
            *folios += 1;
        }
    }

    /// Size in bytes and number of folios of each size that occurs.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let sizes = self.0.iter().enumerate().map(|(order, &folios)| (PAGE_BYTES << order, folios));
        sizes.filter(|&(_, folios)| folios > 0)
    }
}

/// One size of [`FoliosBySize`] in JSON.
#[derive(Serialize, Deserialize)]
struct FolioSize {
    /// Size of a folio.
    bytes: u64,
    /// Number of folios.
    folios: u64,
}

impl Serialize for FoliosBySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|(bytes, folios)| FolioSize { bytes, folios }))
    }
}

impl<'de> Deserialize<'de> for FoliosBySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut by_size = Self::default();
        for FolioSize { bytes, folios } in Vec::deserialize(deserializer)? {
            let order = (1..PMD_ORDER).find(|&order| PAGE_BYTES << order == bytes);
            let order = order.ok_or_else(|| D::Error::custom(format!("{bytes} is not the size of a folio")))?;
            by_size.0[order] = folios;
        }
        Ok(by_size)
    }
}

/// Pages that an operation concerns: single pages and whole huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub pages: u64,
    /// Of these pages, those of a larger folio, if pages are dropped.
    pub folio_pages: u64,
    pub huge: u64,
}

impl PageOperations {
    /// Counts pages dropped by madvise.
    pub(super) fn dropped(&mut self, amount: Amount) {
        self.madv_dontneed_pages += amount.pages;
        self.madv_dontneed_folio_pages += amount.folio_pages;
        self.madv_dontneed_huge_pages += amount.huge;
    }

    /// Counts pages removed with their mapping.
    pub(super) fn unmapped(&mut self, amount: Amount) {
        self.unmapped_pages += amount.pages;
        self.unmapped_folio_pages += amount.folio_pages;
        self.unmapped_huge_pages += amount.huge;
    }

    /// Counts pages marked by `MADV_FREE`, which may be marked already.
    pub(super) fn marked_free(&mut self, amount: Amount, again: bool) {
        self.madv_free_pages += amount.pages;
        self.madv_free_huge_pages += amount.huge;
        if again {
            self.madv_free_repeated_pages += amount.pages;
            self.madv_free_repeated_huge_pages += amount.huge;
        }
    }
}

/// An address space before a fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeforeFault {
    resident: u64,
    tables: u64,
    copies: u64,
}

impl Kernel {
    /// The kernel's work since the start.
    pub fn operations(&self) -> &PageOperations {
        &self.operations
    }

    /// Installs of memory that the process had before.
    pub fn refaults(&self) -> &RefaultsByKind {
        &self.refaults
    }

    pub(super) fn before_fault(&mut self) -> BeforeFault {
        self.note_resident();
        BeforeFault {
            resident: self.resident_bytes(),
            tables: self.page_table_bytes(),
            copies: self.operations.copied_pages,
        }
    }

    /// Counts the work of a fault that installed something.
    pub(super) fn note_fault(&mut self, install: Install, cause: FaultCause, before: BeforeFault) {
        let operations = &mut self.operations;
        match (install.kind, cause) {
            (InstallKind::Mthp, _) => {
                operations.mthp_pages += install.pages;
                operations.mthp_by_bytes.add(install.pages);
            }
            (InstallKind::Base4k, FaultCause::Populate) => operations.populated_pages += 1,
            _ => {}
        }
        if cause == FaultCause::Trap && install.pages < PMD_PAGES {
            operations.page_tables_allocated += self.tables.bytes().saturating_sub(before.tables) / PAGE_BYTES;
        }
        let resident = self.resident_bytes();
        // A copy replaces memory that the process has.
        if self.operations.copied_pages == before.copies && resident > before.resident {
            let taken = self.returned.take(resident - before.resident);
            if let Some(returned_bytes) = taken {
                self.refaults.add(install, cause == FaultCause::Populate, returned_bytes);
            }
        } else {
            self.note_resident();
        }
    }

    /// Notes resident memory after it grew without a fault.
    pub(super) fn note_resident(&mut self) {
        let resident = self.resident_bytes();
        self.returned.reach(resident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write;
    use crate::{Access, Advice, KernelConfig, MapFlags, RemapSource};

    const START: u64 = 4 * PMD_PAGES;

    /// A process with 4 MiB advised for huge pages and 4 MiB without advice after it.
    fn process() -> Kernel {
        let mut kernel = Kernel::new(KernelConfig::default());
        assert!(kernel.map(START..START + 4 * PMD_PAGES, MapFlags::READ_WRITE).result.is_ok());
        assert!(kernel.advise(START..START + 2 * PMD_PAGES, Advice::HugePage).result.is_ok());
        kernel
    }

    fn advise(kernel: &mut Kernel, pages: std::ops::Range<u64>, advice: Advice) {
        assert!(kernel.advise(pages, advice).result.is_ok());
    }

    #[test]
    fn dropping_one_page_of_a_huge_page_drops_one_page() {
        let mut kernel = process();
        write(&mut kernel, [START]);
        advise(&mut kernel, START + 7..START + 8, Advice::DontNeed);
        let done = *kernel.operations();
        assert_eq!([done.madv_dontneed_pages, done.madv_dontneed_huge_pages, kernel.counters().pmd_splits], [1, 0, 1]);
        advise(&mut kernel, START..START + PMD_PAGES, Advice::DontNeed);
        assert_eq!(kernel.operations().madv_dontneed_pages, PMD_PAGES);
        write(&mut kernel, [START]);
        advise(&mut kernel, START..START + PMD_PAGES, Advice::DontNeed);
        assert_eq!(kernel.operations().madv_dontneed_huge_pages, 1, "the range has no table, so it is huge again");
        assert_eq!(kernel.refaults().thp.total(), 1);
    }

    #[test]
    fn a_collapse_copies_pages_and_drops_none() {
        let mut kernel = process();
        let small = START + 2 * PMD_PAGES;
        write(&mut kernel, small..small + PMD_PAGES);
        write(&mut kernel, [small + PMD_PAGES + 3]);
        advise(&mut kernel, small..small + 2 * PMD_PAGES, Advice::Collapse);
        let done = *kernel.operations();
        assert_eq!([done.collapsed_pmds, done.collapsed_present_pages], [2, PMD_PAGES + 1]);
        assert_eq!([done.madv_dontneed_pages, done.madv_dontneed_huge_pages, done.unmapped_pages], [0; 3]);
        assert_eq!(done.page_tables_allocated, 4, "two PTE tables, a PMD table and a PUD table");
        assert_eq!(kernel.unmap(small..small + 2 * PMD_PAGES), Ok(()));
        assert_eq!(kernel.operations().unmapped_huge_pages, 2);
        // The collapse raised the peak: it filled the second huge page.
        write(&mut kernel, [START, START + PMD_PAGES]);
        assert_eq!(kernel.refaults().thp.total(), 2);
    }

    #[test]
    fn pages_stay_marked_free_when_they_are_written() {
        let mut kernel = process();
        let small = START + 2 * PMD_PAGES;
        write(&mut kernel, [START, small, small + 1, small + 2]);
        advise(&mut kernel, START..small + 2, Advice::Free);
        let marked = |kernel: &Kernel| {
            let done = kernel.operations();
            [
                done.madv_free_pages,
                done.madv_free_repeated_pages,
                done.madv_free_huge_pages,
                done.madv_free_repeated_huge_pages,
            ]
        };
        assert_eq!((marked(&kernel), kernel.operations().clean_entries_written), ([2, 0, 1, 0], 0));
        write(&mut kernel, [START, small]);
        assert_eq!(kernel.operations().clean_entries_written, 2);
        assert_eq!(kernel.touch(small + 1, Access::Read), Ok(None));
        write(&mut kernel, [START + 1, small, small + 2]);
        assert_eq!(
            kernel.operations().clean_entries_written,
            2,
            "both are dirty, a read marks none, and one was not freed"
        );
        advise(&mut kernel, START..small + 3, Advice::Free);
        assert_eq!(marked(&kernel), [5, 2, 2, 1]);
        advise(&mut kernel, small..small + 1, Advice::DontNeed);
        write(&mut kernel, [small]);
        advise(&mut kernel, small..small + 1, Advice::Free);
        assert_eq!(marked(&kernel), [6, 2, 2, 1], "a new page is not marked");
    }

    #[test]
    fn dropped_pages_of_a_split_huge_page_are_counted_as_pages_of_a_folio() {
        let mut kernel = process();
        let small = START + 2 * PMD_PAGES;
        write(&mut kernel, [START, small, small + 1]);
        advise(&mut kernel, START + 7..START + 8, Advice::DontNeed);
        advise(&mut kernel, small..small + 1, Advice::DontNeed);
        assert_eq!(kernel.folio_pages(), PMD_PAGES - 1);
        assert!(kernel.unmap(START..START + 4 * PMD_PAGES).is_ok());
        let done = kernel.operations();
        assert_eq!([done.madv_dontneed_pages, done.madv_dontneed_folio_pages], [2, 1]);
        assert_eq!([done.unmapped_pages, done.unmapped_folio_pages], [PMD_PAGES, PMD_PAGES - 1]);
    }

    #[test]
    fn moves_are_counted_by_what_moves() {
        let mut kernel = process();
        let small = START + 2 * PMD_PAGES;
        write(&mut kernel, [START]);
        write(&mut kernel, small..small + 10);
        assert_eq!(kernel.remap(START, PMD_PAGES, 20 * PMD_PAGES, RemapSource::Unmapped), Ok(()));
        assert_eq!(kernel.remap(small, 10, 30 * PMD_PAGES + 1, RemapSource::Unmapped), Ok(()));
        let moved = |kernel: &Kernel| {
            let done = kernel.operations();
            [done.mremap_huge_pages, done.mremap_pte_tables, done.mremap_pages, done.unmapped_pages]
        };
        assert_eq!(moved(&kernel), [1, 0, 10, 0], "another offset in 2 MiB: page by page");
        let whole = small + PMD_PAGES;
        write(&mut kernel, whole..whole + 3);
        assert_eq!(kernel.remap(whole, PMD_PAGES, 40 * PMD_PAGES, RemapSource::Unmapped), Ok(()));
        assert_eq!(moved(&kernel), [1, 1, 10, 0]);
    }

    #[test]
    fn a_fork_copies_entries_and_writes_copy_pages() {
        let mut kernel = process();
        let small = START + 2 * PMD_PAGES;
        write(&mut kernel, [START, small, small + 1]);
        let mut child = kernel.fork();
        let done = *kernel.operations();
        assert_eq!([done.forks, done.forked_pages, done.copied_pages], [1, 2, 0]);
        write(&mut kernel, [START + 9, small]);
        let done = *kernel.operations();
        assert_eq!([done.copied_pages, done.copies_with_split], [2, 1]);
        write(&mut child, [small]);
        assert_eq!(child.operations().copied_pages, 0, "the child has the page alone now");
        assert_eq!(kernel.refaults().base_4k.total(), 0, "copies are no refaults");
        drop(kernel.fork());
        let again = *kernel.operations();
        assert_eq!([again.forked_pages - done.forked_pages, again.forked_folio_pages], [PMD_PAGES + 2, PMD_PAGES - 1]);
    }

    #[test]
    fn folios_are_counted_by_size() {
        let mut folios = FoliosBySize::default();
        [4, 16, 16, 256].into_iter().for_each(|pages| folios.add(pages));
        assert!(folios.iter().eq([(16 << 10, 1), (64 << 10, 2), (1 << 20, 1)]));
    }
}

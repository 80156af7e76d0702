//! Queries of the simulated address space: what /proc and pagemap would show.

use std::ops::Range;

use serde::Serialize;

use super::Kernel;
use super::entry::{HugePage, PmdEntry, PteKind, PteTable};
use super::rules::SmapsProtNoneHuge;
use super::span::{PAGE_BYTES, PMD_PAGES, clip, index_of, pages_of, pmd_of, pmds_touching};
use super::vma::{Protection, Vma};

/// What one page of the address space maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageState {
    /// Not mapped, not touched, or a guard page.
    None,
    /// The shared zero page.
    Zero,
    /// A 4 KiB page.
    Base,
    /// Part of a huge page mapped by a 2 MiB entry.
    Thp,
    /// Part of the huge zero page.
    HugeZero,
    /// A page of a larger folio mapped page by page: an mTHP, or a huge page whose entry was split.
    Mthp,
    /// Part of a page of the hugetlb pool.
    Hugetlb,
}

/// What the PMD entry of a 2 MiB range holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PmdState {
    /// pmd_none: the next fault may install a huge page (R1a).
    None,
    /// A PTE table, which may be empty.
    Table,
    /// A huge page.
    Thp,
    /// The huge zero page.
    HugeZero,
    /// A page of the hugetlb pool.
    Hugetlb,
}

/// Consecutive pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StateRun {
    /// The first page.
    pub first_page: u64,
    /// Number of pages.
    pub pages: u64,
    /// Their state.
    pub state: PageState,
}

impl Kernel {
    /// Resident pages of 4 KiB: smaps `Rss`. Excludes zero pages and hugetlb (R4, R13).
    pub fn rss_pages(&self) -> u64 {
        self.tables.rss_pages
    }

    /// Huge pages mapped by a PMD entry: smaps `AnonHugePages`, in units of 2 MiB.
    pub fn huge_pages(&self) -> u64 {
        self.tables.huge_pages
    }

    /// Huge pages that smaps counts in `Rss` and `AnonHugePages`, in units of 2 MiB. Linux 6.1 leaves out huge pages in
    /// mappings without access.
    pub fn huge_pages_in_smaps(&self) -> u64 {
        self.huge_pages() - self.left_out_of_smaps().count() as u64
    }

    fn left_out_of_smaps(&self) -> impl Iterator<Item = &HugePage> {
        let is_left_out = |vma: &Vma| {
            self.config.rules.smaps_prot_none_huge == SmapsProtNoneHuge::Omitted
                && vma.flags.protection == Protection::None
        };
        let forbidden = self.vmas.all().into_iter().filter(is_left_out);
        forbidden.flat_map(|vma| pmds_touching(&vma.pages())).filter_map(|pmd| match self.tables.entry(pmd) {
            PmdEntry::Huge(huge) => Some(&**huge),
            _ => None,
        })
    }

    /// Mapped pages of the hugetlb pool, in units of 2 MiB: smaps `Private_Hugetlb`.
    pub fn hugetlb_pages(&self) -> u64 {
        self.tables.hugetlb_pages
    }

    /// Bytes of page tables, upper levels included: `VmPTE` (R15, R21).
    pub fn page_table_bytes(&self) -> u64 {
        self.tables.bytes()
    }

    /// Mappings in the simulated address space.
    pub fn vma_count(&self) -> u64 {
        self.vmas.len()
    }

    /// The page ranges of the mappings that overlap `range`, in order.
    pub fn mappings(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.vmas.overlapping(&range).iter().map(|vma| vma.pages()).collect()
    }

    /// Pages of 4 KiB that were freed lazily and not written since: smaps `LazyFree` (R9). Each call counts them again,
    /// in time proportional to the number of page tables.
    pub fn lazy_free_pages(&self) -> u64 {
        let mut pages = 0;
        let mut from = 0;
        while let Some(pmd) = self.tables.next_present(from, u64::MAX) {
            pages += match self.tables.entry(pmd) {
                PmdEntry::Huge(huge) if self.is_lazily_freed(huge) => PMD_PAGES,
                PmdEntry::Table(table) => self.lazy_in_table(table),
                _ => 0,
            };
            from = pmd + 1;
        }
        pages - PMD_PAGES * self.left_out_of_smaps().filter(|huge| self.is_lazily_freed(huge)).count() as u64
    }

    /// Pages of 4 KiB that belong to a larger folio and are mapped one by one. Each call counts them again, as
    /// [`Kernel::lazy_free_pages`] does.
    pub fn folio_pages(&self) -> u64 {
        let (mut pages, mut from) = (0, 0);
        while let Some(pmd) = self.tables.next_present(from, u64::MAX) {
            if let PmdEntry::Table(table) = self.tables.entry(pmd) {
                pages += table.ptes.iter().filter(|pte| pte.kind() == PteKind::FolioPage).count() as u64;
            }
            from = pmd + 1;
        }
        pages
    }

    /// Pages outside `range` that map large folios which are also mapped inside `range`. Such folios exist after mremap
    /// moved part of a folio. Splitting the folio changes all its pages.
    pub fn folio_pages_outside(&self, range: &Range<u64>) -> Vec<u64> {
        let mut pages = Vec::new();
        let pmds = pmds_touching(range);
        let (mut from, mut seen) = (pmds.start, None);
        while let Some(pmd) = self.tables.next_present(from, pmds.end) {
            from = pmd + 1;
            let PmdEntry::Table(table) = self.tables.entry(pmd) else { continue };
            for folio_page in clip(range, pmd).filter_map(|page| table.folio_page(index_of(page))) {
                if seen.replace(folio_page.folio) != Some(folio_page.folio) {
                    let memory = self.memory.get();
                    let mapped = memory.folios.get(folio_page.folio).mapped_pages(self.space);
                    pages.extend(mapped.filter(|page| !range.contains(page)));
                }
            }
        }
        pages
    }

    /// The state of one page.
    pub fn page_state(&self, page: u64) -> PageState {
        self.state_in(self.tables.entry(pmd_of(page)), index_of(page))
    }

    /// The state of the PMD entry that covers `page`.
    pub fn pmd_state(&self, page: u64) -> PmdState {
        match self.tables.entry(pmd_of(page)) {
            PmdEntry::None => PmdState::None,
            PmdEntry::Table(_) => PmdState::Table,
            PmdEntry::Huge(_) => PmdState::Thp,
            PmdEntry::HugeZero => PmdState::HugeZero,
            PmdEntry::Hugetlb { .. } => PmdState::Hugetlb,
        }
    }

    /// The states of `range` as runs, in order and without gaps. Takes time proportional to the touched part of the
    /// range.
    pub fn page_states(&self, range: Range<u64>) -> Vec<StateRun> {
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let pmd = pmd_of(at);
            let present = self.tables.next_present(pmd, range.end.div_ceil(PMD_PAGES));
            if present != Some(pmd) {
                let next = present.map_or(range.end, |next| pages_of(next).start);
                push_run(&mut runs, at..next, PageState::None);
                at = next;
                continue;
            }
            let entry = self.tables.entry(pmd);
            let end = pages_of(pmd).end.min(range.end);
            for page in at..end {
                push_run(&mut runs, page..page + 1, self.state_in(entry, index_of(page)));
            }
            at = end;
        }
        runs
    }

    /// Resident bytes of the whole address space, hugetlb included.
    pub fn resident_bytes(&self) -> u64 {
        (self.tables.rss_pages + self.tables.hugetlb_pages * PMD_PAGES) * PAGE_BYTES
    }

    fn state_in(&self, entry: &PmdEntry, index: usize) -> PageState {
        match entry {
            PmdEntry::None => PageState::None,
            PmdEntry::Huge(_) => PageState::Thp,
            PmdEntry::HugeZero => PageState::HugeZero,
            PmdEntry::Hugetlb { .. } => PageState::Hugetlb,
            PmdEntry::Table(table) => match table.ptes[index].kind() {
                PteKind::None | PteKind::Guard => PageState::None,
                PteKind::Zero => PageState::Zero,
                PteKind::Base => PageState::Base,
                PteKind::FolioPage => PageState::Mthp,
            },
        }
    }

    /// Whether a huge page was freed lazily, and neither its entry nor its folio is dirty.
    fn is_lazily_freed(&self, huge: &HugePage) -> bool {
        let (mut dirty, mut lazy) = (huge.dirty || huge.page_dirty, huge.lazy);
        if let Some(folio) = huge.folio {
            let memory = self.memory.get();
            let folio = memory.folios.get(folio);
            dirty |= folio.dirty;
            lazy |= folio.lazy;
        }
        lazy && !dirty
    }

    /// Number of lazily freed pages in a PTE table. A page of a large folio counts if the whole folio was freed lazily
    /// and neither the folio nor the entry is dirty.
    fn lazy_in_table(&self, table: &PteTable) -> u64 {
        let is_lazy = |index: usize| {
            let pte = table.ptes[index];
            !pte.dirty()
                && match table.folio_page(index) {
                    Some(folio_page) => {
                        let memory = self.memory.get();
                        let folio = memory.folios.get(folio_page.folio);
                        folio.lazy && !folio.dirty
                    }
                    None => pte.kind() == PteKind::Base && pte.lazy(),
                }
        };
        (0..table.ptes.len()).filter(|&index| is_lazy(index)).count() as u64
    }
}

fn push_run(runs: &mut Vec<StateRun>, pages: Range<u64>, state: PageState) {
    let length = pages.end - pages.start;
    match runs.last_mut() {
        Some(run) if run.state == state => run.pages += length,
        _ => runs.push(StateRun { first_page: pages.start, pages: length, state }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Advice, Content, KernelConfig, MapFlags};

    #[test]
    fn a_partly_moved_folio_is_in_two_places() {
        let mut kernel = Kernel::new(KernelConfig::default());
        let mapped = 4 * PMD_PAGES..6 * PMD_PAGES;
        assert!(kernel.map(mapped.clone(), MapFlags::READ_WRITE).result.is_ok());
        assert!(kernel.advise(mapped.clone(), Advice::HugePage).result.is_ok());
        kernel.touch(mapped.start, Access::Write(Content::NonZero)).expect("the access succeeds");
        assert_eq!(kernel.folio_pages_outside(&mapped), Vec::<u64>::new());
        let (half, elsewhere) = (PMD_PAGES / 2, 9 * PMD_PAGES);
        assert_eq!(kernel.remap(mapped.start, half, elsewhere, crate::RemapSource::Unmapped), Ok(()));
        let stayed: Vec<u64> = (mapped.start + half..mapped.start + PMD_PAGES).collect();
        let moved: Vec<u64> = (elsewhere..elsewhere + half).collect();
        assert_eq!(kernel.folio_pages_outside(&mapped), moved);
        assert_eq!(kernel.folio_pages_outside(&(elsewhere..elsewhere + PMD_PAGES)), stayed);
    }
}

//! The kernel's work in a run, as the kernel model counts it, in operations that have a price.

use hksim_linux_mm::{InstallKind, PageOperations, Refaults, RefaultsByKind};

use crate::price::{FirstTouch, Locality, Work};
use crate::profile::{FOOTPRINTS, Operation};

/// What the processor's caches hold of memory that the kernel zeroes at a first touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// What they can hold of a footprint of this size: a run that repeats touches the memory that it has just returned.
    Warm(u64),
    /// Nothing: the memory was another process's, and the program has worked since.
    Cold,
}

impl Caches {
    /// The memory that passes through them.
    fn footprint_bytes(self) -> u64 {
        let [.., largest] = &FOOTPRINTS;
        match self {
            Caches::Warm(bytes) => bytes,
            Caches::Cold => largest.bytes,
        }
    }
}

/// What the kernel did in a run.
#[derive(Clone, Copy, Debug)]
pub struct KernelWork<'a> {
    /// Installs by kind, in the order of [`InstallKind::ALL`].
    pub installs: [u64; InstallKind::ALL.len()],
    /// Pages dropped, marked, moved, collapsed and copied.
    pub operations: &'a PageOperations,
    /// Installs of memory that the process had before.
    pub refaults: &'a RefaultsByKind,
    /// The locality of first touches of single pages and folios.
    pub small: Locality,
    /// The locality of first touches of huge pages and of pages of the pool.
    pub huge: Locality,
    /// The state of the caches. If they are warm, the footprint is the peak of resident memory.
    pub caches: Caches,
    /// Huge PMD entries split.
    pub pmd_splits: u64,
    /// Faults that only restored write permission.
    pub reuses: u64,
    /// Calls.
    pub calls: Calls,
}

/// Calls that change memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    /// Calls that map memory.
    pub map: u64,
    /// Calls that unmap it.
    pub unmap: u64,
    /// Calls of madvise.
    pub advise: u64,
    /// Calls of mremap.
    pub remap: u64,
}

impl From<&KernelWork<'_>> for Work {
    fn from(run: &KernelWork<'_>) -> Work {
        let mut work = Work::default();
        run.add_first_touches(&mut work);
        let done = run.operations;
        work.add_collapses(done.collapsed_pmds, done.collapsed_present_pages);
        for (operation, number) in [
            (Operation::ZeroReadFault, run.installs_of(InstallKind::Zero)),
            (Operation::WriteAfterZero, run.installs_of(InstallKind::Cow).saturating_sub(done.copied_pages)),
            (Operation::PageTable, done.page_tables_allocated),
            (Operation::DontneedPage, done.madv_dontneed_pages.saturating_sub(done.madv_dontneed_folio_pages)),
            (Operation::DontneedHuge, done.madv_dontneed_huge_pages),
            (Operation::FreePage, done.madv_free_pages.saturating_sub(done.madv_free_repeated_pages)),
            (Operation::FreePageAgain, done.madv_free_repeated_pages),
            (Operation::FreeHuge, done.madv_free_huge_pages.saturating_sub(done.madv_free_repeated_huge_pages)),
            (Operation::FreeHugeAgain, done.madv_free_repeated_huge_pages),
            (Operation::MunmapPage, done.unmapped_pages.saturating_sub(done.unmapped_folio_pages)),
            (Operation::DropFolioPage, done.madv_dontneed_folio_pages + done.unmapped_folio_pages),
            (Operation::MunmapHuge, done.unmapped_huge_pages),
            (Operation::HugetlbDrop, done.unmapped_hugetlb_pages),
            (Operation::MoveTable, done.mremap_pte_tables),
            (Operation::MovePage, done.mremap_pages),
            (Operation::MoveHuge, done.mremap_huge_pages),
            (Operation::SplitHuge, run.pmd_splits.saturating_sub(done.copies_with_split)),
            (Operation::ForkCall, done.forks),
            (Operation::ForkPage, done.forked_pages.saturating_sub(done.forked_folio_pages)),
            (Operation::ForkFolioPage, done.forked_folio_pages),
            (Operation::SplitAfterFork, done.copies_with_split),
            (Operation::CopyAfterFork, done.copied_pages.saturating_sub(done.copies_with_split)),
            (Operation::ReuseAfterFork, run.reuses),
            (Operation::MmapCall, run.calls.map),
            (Operation::MunmapCall, run.calls.unmap),
            (Operation::MadviseCall, run.calls.advise),
            (Operation::MremapCall, run.calls.remap),
        ] {
            work.add(operation, number);
        }
        work
    }
}

impl KernelWork<'_> {
    fn installs_of(&self, kind: InstallKind) -> u64 {
        self.installs[kind as usize]
    }

    fn add_first_touches(&self, work: &mut Work) {
        let (done, of) = (self.operations, self.refaults);
        let huge = self.installs_of(InstallKind::Thp).saturating_sub(done.collapsed_pmds);
        let small = self.installs_of(InstallKind::Base4k).saturating_sub(done.populated_pages);
        work.add_new_huge(huge.saturating_sub(of.thp.total()));
        let folios: u64 = done.mthp_by_bytes.iter().map(|(_, folios)| folios).sum();
        for (number, refaults, touch) in [
            (huge, &of.thp, FirstTouch::Huge(self.huge)),
            (done.populated_pages, &of.base_4k_populated, FirstTouch::Populated),
            (self.installs_of(InstallKind::Hugetlb), &of.hugetlb, FirstTouch::Pool(self.huge)),
        ] {
            self.add_touches(work, number, refaults, |part| part, |_| touch);
        }
        for (bytes, number) in done.mthp_by_bytes.iter() {
            // Refaults of folios are not counted by size.
            let part = |all| all * number / folios;
            self.add_touches(work, number, &of.mthp, part, |among| FirstTouch::Folios(bytes, self.locality(among)));
        }
        self.add_touches(work, small, &of.base_4k, |part| part, |among| FirstTouch::Pages(self.locality(among)));
    }

    /// The locality of first touches of single pages and folios, while this amount of memory passes through the caches.
    fn locality(&self, bytes: u64) -> Locality {
        match self.caches {
            Caches::Warm(_) => self.small.among(bytes),
            Caches::Cold => self.small,
        }
    }

    /// Adds first touches, and those among them that are refaults: `part` of each class. The cost of a refault depends on
    /// how much memory was returned to the kernel and not yet taken again. `touch` is given the memory that passes through
    /// the caches.
    fn add_touches(
        &self,
        work: &mut Work,
        number: u64,
        refaults: &Refaults,
        part: impl Fn(u64) -> u64,
        touch: impl Fn(u64) -> FirstTouch,
    ) {
        let again: u64 = refaults.iter().map(|(_, number)| part(number)).sum();
        let footprint_bytes = self.caches.footprint_bytes();
        work.add_first_touches(touch(footprint_bytes), number.saturating_sub(again), footprint_bytes);
        refaults.iter().for_each(|(bytes, number)| work.add_refaults(touch(bytes), part(number), bytes));
    }
}

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

/// A part of the kernel's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelPart {
    /// Installs of a kind, by faults and calls. Those of the other two parts are left out.
    Installs(InstallKind),
    /// Single pages that a call populated.
    Populated,
    /// Huge pages that a call collapsed.
    Collapsed,
    /// Page tables.
    PageTables,
    /// Memory given back by `madvise`.
    Purges,
    /// Memory that was unmapped.
    Unmapped,
    /// Memory that was moved.
    Moved,
    /// Splits of huge pages.
    Splits,
    /// Forks, and write permissions after them.
    Forks,
    /// The system calls themselves, and the translations that they invalidate.
    Calls,
}

impl KernelPart {
    /// Its name, in words.
    pub fn name(self) -> &'static str {
        match self {
            KernelPart::Installs(InstallKind::Base4k) => "installs of 4 KiB pages",
            KernelPart::Installs(InstallKind::Mthp) => "installs of folios",
            KernelPart::Installs(InstallKind::Thp) => "installs of huge pages",
            KernelPart::Installs(InstallKind::Hugetlb) => "installs of hugetlb pages",
            KernelPart::Installs(InstallKind::Zero) => "installs of the zero page",
            KernelPart::Installs(InstallKind::Cow) => "copies on write",
            KernelPart::Populated => "populated pages",
            KernelPart::Collapsed => "collapsed huge pages",
            KernelPart::PageTables => "page tables",
            KernelPart::Purges => "purges",
            KernelPart::Unmapped => "unmapping",
            KernelPart::Moved => "moves of mappings",
            KernelPart::Splits => "splits of huge pages",
            KernelPart::Forks => "forks",
            KernelPart::Calls => "system calls",
        }
    }
}

impl From<&KernelWork<'_>> for Work {
    fn from(run: &KernelWork<'_>) -> Work {
        run.parts().into_iter().fold(Work::default(), |all, (_, _, part)| all.plus(part))
    }
}

impl KernelWork<'_> {
    /// The work by part, with the number of its operations. Their sum is all work.
    pub fn parts(&self) -> Vec<(KernelPart, u64, Work)> {
        let mut parts = self.installs_by_part();
        for (part, operation, number) in self.operations() {
            if parts.last().is_none_or(|(last, ..)| *last != part) {
                parts.push((part, 0, Work::default()));
            }
            if let Some((_, total, work)) = parts.last_mut() {
                *total += number;
                work.add(operation, number);
            }
        }
        parts
    }

    /// Operations besides first touches and collapses; those of a part follow each other.
    fn operations(&self) -> [(KernelPart, Operation, u64); 31] {
        use KernelPart::{Calls, Forks, Installs, Moved, PageTables, Purges, Splits, Unmapped};
        let (done, cow) = (self.operations, self.installs_of(InstallKind::Cow));
        [
            (Installs(InstallKind::Zero), Operation::ZeroReadFault, self.installs_of(InstallKind::Zero)),
            (Installs(InstallKind::Cow), Operation::WriteAfterZero, cow.saturating_sub(done.copied_pages)),
            (Installs(InstallKind::Cow), Operation::SplitAfterFork, done.copies_with_split),
            (
                Installs(InstallKind::Cow),
                Operation::CopyAfterFork,
                done.copied_pages.saturating_sub(done.copies_with_split),
            ),
            (PageTables, Operation::PageTable, done.page_tables_allocated),
            (Purges, Operation::DontneedPage, done.madv_dontneed_pages.saturating_sub(done.madv_dontneed_folio_pages)),
            (Purges, Operation::DontneedHuge, done.madv_dontneed_huge_pages),
            (Purges, Operation::FreePage, done.madv_free_pages.saturating_sub(done.madv_free_repeated_pages)),
            (Purges, Operation::FreePageAgain, done.madv_free_repeated_pages),
            (Purges, Operation::FreeHuge, done.madv_free_huge_pages.saturating_sub(done.madv_free_repeated_huge_pages)),
            (Purges, Operation::FreeHugeAgain, done.madv_free_repeated_huge_pages),
            (Purges, Operation::RewriteFreed, done.clean_entries_written),
            (Purges, Operation::DropFolioPage, done.madv_dontneed_folio_pages),
            (Unmapped, Operation::MunmapPage, done.unmapped_pages.saturating_sub(done.unmapped_folio_pages)),
            (Unmapped, Operation::DropFolioPage, done.unmapped_folio_pages),
            (Unmapped, Operation::MunmapHuge, done.unmapped_huge_pages),
            (Unmapped, Operation::HugetlbDrop, done.unmapped_hugetlb_pages),
            (Moved, Operation::MoveTable, done.mremap_pte_tables),
            (Moved, Operation::MovePage, done.mremap_pages),
            (Moved, Operation::MoveHuge, done.mremap_huge_pages),
            (Splits, Operation::SplitHuge, self.pmd_splits.saturating_sub(done.copies_with_split)),
            (Forks, Operation::ForkCall, done.forks),
            (Forks, Operation::ForkPage, done.forked_pages.saturating_sub(done.forked_folio_pages)),
            (Forks, Operation::ForkFolioPage, done.forked_folio_pages),
            (Forks, Operation::ReuseAfterFork, self.reuses),
            (Calls, Operation::MmapCall, self.calls.map),
            (Calls, Operation::MunmapCall, self.calls.unmap),
            (Calls, Operation::MadviseCall, self.calls.advise),
            (Calls, Operation::MremapCall, self.calls.remap),
            (Calls, Operation::DropCall, done.dropping_calls),
            (Calls, Operation::FlushPage, done.flushed_pages),
        ]
    }

    fn installs_of(&self, kind: InstallKind) -> u64 {
        self.installs[kind as usize]
    }

    /// First touches and collapses.
    fn installs_by_part(&self) -> Vec<(KernelPart, u64, Work)> {
        let (done, of) = (self.operations, self.refaults);
        let huge = self.installs_of(InstallKind::Thp).saturating_sub(done.collapsed_pmds);
        let small = self.installs_of(InstallKind::Base4k).saturating_sub(done.populated_pages);
        let pool = self.installs_of(InstallKind::Hugetlb);
        let mut parts = [
            (KernelPart::Collapsed, done.collapsed_pmds),
            (KernelPart::Installs(InstallKind::Thp), huge),
            (KernelPart::Populated, done.populated_pages),
            (KernelPart::Installs(InstallKind::Hugetlb), pool),
            (KernelPart::Installs(InstallKind::Mthp), self.installs_of(InstallKind::Mthp)),
            (KernelPart::Installs(InstallKind::Base4k), small),
        ]
        .map(|(part, number)| (part, number, Work::default()));
        let [collapsed, thp, populated, hugetlb, mthp, pages] = parts.each_mut().map(|(_, _, work)| work);
        collapsed.add_collapses(done.collapsed_pmds, done.collapsed_present_pages);
        thp.add_new_huge(huge.saturating_sub(of.thp.total()));
        for (work, number, refaults, touch) in [
            (thp, huge, &of.thp, FirstTouch::Huge(self.huge)),
            (populated, done.populated_pages, &of.base_4k_populated, FirstTouch::Populated),
            (hugetlb, pool, &of.hugetlb, FirstTouch::Pool(self.huge)),
        ] {
            self.add_touches(work, number, refaults, |part| part, |_| touch);
        }
        let folios: u64 = done.mthp_by_bytes.iter().map(|(_, folios)| folios).sum();
        for (bytes, number) in done.mthp_by_bytes.iter() {
            // Refaults of folios are not counted by size.
            let part = |all| all * number / folios;
            self.add_touches(mthp, number, &of.mthp, part, |among| FirstTouch::Folios(bytes, self.locality(among)));
        }
        self.add_touches(pages, small, &of.base_4k, |part| part, |among| FirstTouch::Pages(self.locality(among)));
        parts.into()
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

//! The values of the switches of `rules.rs`, for each kernel version.
//!
//! They come from the source of each version (each switch names the file); those of 6.18 were also measured.

use super::rules::{
    AnonVmaMerge, Collapse, CollapseInsideRange, CollapseWithoutTable, DontneedLocked, DontunmapSource, EmptyPteTables,
    GuardPages, HeapMerge, HugeZeroWrite, HugetlbDontneed, HugetlbPopulateFaults, KhugepagedLazyFree,
    KhugepagedSharedTest, KhugepagedSizes, LargeFolioReuse, MadvFreeSharedTest, MadvFreeSplit, MadvPopulateHoles,
    MadviseMapCountErrno, MapStack, MmapAlignment, MmapFixedHugetlbErrno, MprotectCommitCharge, MprotectPmdDirty,
    MprotectPteDirty, MremapGrowMerge, MremapPageTables, MremapRange, MthpSupport, NewVmaMerge, PmdSplitDirty, Rules,
    SmapsProtNoneHuge, WriteAfterMprotect, ZeroFilledOnSplit,
};
use super::span::PMD_PAGES;
use super::version::KernelVersion;

impl Rules {
    /// Linux 5.15. From its source.
    pub const LINUX_5_15: Self = Self {
        version: KernelVersion::V5_15,
        huge_zero_write: HugeZeroWrite::SplitPmd,
        mmap_alignment: MmapAlignment::Page,
        mthp_support: MthpSupport::Unsupported,
        empty_pte_tables: EmptyPteTables::Keep,
        madv_free_split: MadvFreeSplit::Always,
        zero_filled_on_split: ZeroFilledOnSplit::Keep,
        collapse: Collapse::Unsupported,
        collapse_without_table: CollapseWithoutTable::Ends,
        collapse_inside_range: CollapseInsideRange::Einval,
        khugepaged_shared_test: KhugepagedSharedTest::Page,
        khugepaged_sizes: KhugepagedSizes::Pmd,
        khugepaged_lazy_free: KhugepagedLazyFree::Collapsed,
        hugetlb_dontneed: HugetlbDontneed::Einval,
        anon_vma_merge: AnonVmaMerge::ExistingOnly,
        new_vma_merge: NewVmaMerge::BothOrPrev,
        heap_merge: HeapMerge::AsMmap,
        mprotect_commit_charge: MprotectCommitCharge::Kept,
        mprotect_pte_dirty: MprotectPteDirty::PerPte,
        mprotect_pmd_dirty: MprotectPmdDirty::Kept,
        write_after_mprotect: WriteAfterMprotect::Fault,
        mremap_range: MremapRange::OneVmaLateChecks,
        dontunmap_source: DontunmapSource::AsNew,
        mremap_page_tables: MremapPageTables::RangeOnly,
        large_folio_reuse: LargeFolioReuse::LastPage,
        madv_populate_holes: MadvPopulateHoles::Skip,
        madvise_map_count_errno: MadviseMapCountErrno::Enomem,
        mremap_grow_merge: MremapGrowMerge::Never,
        pmd_split_dirty: PmdSplitDirty::FolioOnly,
        madv_free_shared_test: MadvFreeSharedTest::OtherMappers,
        mmap_fixed_hugetlb_errno: MmapFixedHugetlbErrno::Enomem,
        hugetlb_populate_faults: HugetlbPopulateFaults::NotCharged,
        smaps_prot_none_huge: SmapsProtNoneHuge::Counted,
        map_stack: MapStack::Ignored,
        dontneed_locked: DontneedLocked::Unsupported,
        guard_pages: GuardPages::Unsupported,
    };

    /// Linux 6.1: MADV_COLLAPSE, MADV_DONTNEED of hugetlb, no write fault after mprotect for small pages. From its
    /// source.
    pub const LINUX_6_1: Self = Self {
        version: KernelVersion::V6_1,
        collapse: Collapse::NeedsWritablePage,
        hugetlb_dontneed: HugetlbDontneed::ToPool,
        write_after_mprotect: WriteAfterMprotect::FaultIfClean,
        mremap_range: MremapRange::OneVma,
        dontunmap_source: DontunmapSource::Unchanged,
        new_vma_merge: NewVmaMerge::NextFirst,
        heap_merge: HeapMerge::HeapOnly,
        madvise_map_count_errno: MadviseMapCountErrno::Eagain,
        mremap_grow_merge: MremapGrowMerge::AsMmap,
        madv_free_shared_test: MadvFreeSharedTest::FirstPageMapcount,
        smaps_prot_none_huge: SmapsProtNoneHuge::Omitted,
        dontneed_locked: DontneedLocked::Supported,
        ..Self::LINUX_5_15
    };

    /// Linux 6.8: sizes between 4 KiB and 2 MiB, alignment of long mappings, no write fault after mprotect for huge
    /// pages. From its source.
    pub const LINUX_6_8: Self = Self {
        version: KernelVersion::V6_8,
        mmap_alignment: MmapAlignment::PmdIfLarge,
        mthp_support: MthpSupport::PerSize,
        mprotect_commit_charge: MprotectCommitCharge::Uncharged,
        write_after_mprotect: WriteAfterMprotect::NoFault,
        dontunmap_source: DontunmapSource::AsNew,
        mremap_page_tables: MremapPageTables::WholeTable,
        pmd_split_dirty: PmdSplitDirty::Ptes,
        madv_free_shared_test: MadvFreeSharedTest::OtherMappers,
        hugetlb_populate_faults: HugetlbPopulateFaults::Charged,
        smaps_prot_none_huge: SmapsProtNoneHuge::Counted,
        map_stack: MapStack::NoHugePage,
        ..Self::LINUX_6_1
    };

    /// Linux 6.12 (the stable series): splits drop zero-filled pages, aging keeps whole folios, only multiples of 2 MiB
    /// are aligned. From its source.
    pub const LINUX_6_12: Self = Self {
        version: KernelVersion::V6_12,
        khugepaged_shared_test: KhugepagedSharedTest::Folio,
        mmap_alignment: MmapAlignment::PmdIfMultiple,
        madv_free_split: MadvFreeSplit::IfPartial,
        zero_filled_on_split: ZeroFilledOnSplit::MapZeroPage,
        hugetlb_dontneed: HugetlbDontneed::ToReserve,
        mprotect_pmd_dirty: MprotectPmdDirty::Lost,
        dontunmap_source: DontunmapSource::Unchanged,
        large_folio_reuse: LargeFolioReuse::Never,
        madv_populate_holes: MadvPopulateHoles::Stop,
        new_vma_merge: NewVmaMerge::BothOrPrev,
        mmap_fixed_hugetlb_errno: MmapFixedHugetlbErrno::Einval,
        ..Self::LINUX_6_8
    };

    /// Linux 6.14: empty tables are freed, a write upgrades a huge zero page to a huge page. From its source.
    pub const LINUX_6_14: Self = Self {
        version: KernelVersion::V6_14,
        huge_zero_write: HugeZeroWrite::AllocateHuge,
        empty_pte_tables: EmptyPteTables::Free,
        guard_pages: GuardPages::Anonymous,
        ..Self::LINUX_6_12
    };

    /// Linux 6.18. Everything was measured on this version.
    pub const LINUX_6_18: Self = Self {
        version: KernelVersion::V6_18,
        collapse: Collapse::NeedsPteTable,
        guard_pages: GuardPages::AnonymousAndFiles,
        anon_vma_merge: AnonVmaMerge::Either,
        mprotect_pte_dirty: MprotectPteDirty::PerBatch,
        mprotect_pmd_dirty: MprotectPmdDirty::Kept,
        mremap_range: MremapRange::ManyVmas,
        large_folio_reuse: LargeFolioReuse::AllButLastPage,
        ..Self::LINUX_6_14
    };

    /// Linux 7.2: khugepaged makes all enabled sizes and leaves lazily freed pages alone, MADV_COLLAPSE goes on after
    /// ranges without tables. Two differences are not modelled (R14, R20 in docs/reference/kernel-rules.md). From its source, and measured
    /// under emulation.
    pub const LINUX_7_2: Self = Self {
        version: KernelVersion::V7_2,
        collapse_without_table: CollapseWithoutTable::GoesOn,
        collapse_inside_range: CollapseInsideRange::Succeeds,
        khugepaged_sizes: KhugepagedSizes::AllEnabled,
        khugepaged_lazy_free: KhugepagedLazyFree::LeftAlone,
        ..Self::LINUX_6_18
    };

    /// The rules of a version.
    pub const fn of(version: KernelVersion) -> Self {
        match version {
            KernelVersion::V5_15 => Self::LINUX_5_15,
            KernelVersion::V6_1 => Self::LINUX_6_1,
            KernelVersion::V6_8 => Self::LINUX_6_8,
            KernelVersion::V6_12 => Self::LINUX_6_12,
            KernelVersion::V6_14 => Self::LINUX_6_14,
            KernelVersion::V6_18 => Self::LINUX_6_18,
            KernelVersion::V7_2 => Self::LINUX_7_2,
        }
    }

    /// Whether an anonymous mmap of `pages` pages without a hint is placed on a 2 MiB boundary (R5). If false, it is
    /// placed on a page boundary.
    pub fn map_is_pmd_aligned(&self, pages: u64) -> bool {
        match self.mmap_alignment {
            MmapAlignment::Page => false,
            MmapAlignment::PmdIfLarge => pages >= PMD_PAGES,
            MmapAlignment::PmdIfMultiple => pages > 0 && pages.is_multiple_of(PMD_PAGES),
        }
    }
}

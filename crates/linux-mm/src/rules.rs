//! The behaviours that differ between kernel versions, each as a named switch.
//!
//! The values come from the source of each version (each switch names the file); those of 6.18 were also measured.

use serde::Serialize;

use super::span::PMD_PAGES;
use super::version::KernelVersion;

/// The first write to a huge zero page (R4). `do_huge_pmd_wp_page` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugeZeroWrite {
    /// It installs a full huge page.
    Upgrade,
    /// It splits the entry into 512 zero pages and copies the one written.
    Split,
}

/// Alignment of anonymous mmaps without a hint (R5). `__get_unmapped_area` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapAlignment {
    /// Any page.
    Page,
    /// A 2 MiB boundary if the length is at least 2 MiB.
    LongMaps,
    /// A 2 MiB boundary if the length is a multiple of 2 MiB.
    #[serde(rename = "whole_blocks")]
    WholePmds,
}

/// Folio sizes between 4 KiB and 2 MiB (R3). `alloc_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MidSizes {
    /// Not supported; 2 MiB follows the global mode.
    Absent,
    /// Each size has its own mode.
    Present,
}

/// A PTE table whose whole range one MADV_DONTNEED drops (R8'). mm/pt_reclaim.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyTables {
    /// It stays. munmap frees it later, if no mapping is left around it (R21).
    Keep,
    /// It is freed.
    Free,
}

/// Which large folios, mapped page by page, MADV_FREE and MADV_COLD split (R9a). `madvise_free_pte_range` in
/// mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgingSplit {
    /// Every one in the range.
    Always,
    /// Those that the range covers only in part.
    Part,
}

/// What a folio split does with zero-filled pages (R10). `try_to_map_unused_to_zeropage` in mm/migrate.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZerosOnSplit {
    /// They stay mapped.
    Keep,
    /// They are replaced by the zero page.
    ZeroPage,
}

/// MADV_COLLAPSE (R12'). `madvise_collapse`, `hpage_collapse_scan_pmd` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Collapse {
    /// Not supported: EINVAL.
    Absent,
    /// A range needs at least one page that can be written without a fault.
    WritablePage,
    /// Any range with a PTE table is collapsed.
    AnyTable,
}

/// MADV_DONTNEED on a hugetlb mapping (R13). `madvise_dontneed_free_valid_vma` in mm/madvise.c,
/// `__unmap_hugepage_range` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbDontneed {
    /// EINVAL.
    Refused,
    /// The pages go back to the pool.
    ToPool,
    /// The pages go back to the pool and stay reserved for the mapping.
    ToReserve,
}

/// Whether two mappings with equal flags merge if only one of them has anonymous memory (R19). `is_mergeable_anon_vma`
/// in mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnonMerge {
    /// Only if the existing one has it.
    IntoTouched,
    /// Always.
    Either,
}

/// Which neighbours a new mapping of mmap merges with if not all three can merge (R20). `mmap_region` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FreshMerge {
    /// Both if they can merge, otherwise the previous one.
    AsAny,
    /// The next one; the previous one only if it has the same anon_vma, or if the next has none.
    #[serde(rename = "behind_first")]
    NextFirst,
}

/// Whether mprotect uncharges never-written memory that stops being writable (R18). `mprotect_fixup` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeAfterProtect {
    /// It stays charged.
    Kept,
    /// It is uncharged.
    GivenBack,
}

/// Dirty bits of a large folio's PTEs in mprotect (R26). `change_pte_range` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectDirty {
    /// Each entry keeps its own.
    PerPage,
    /// One dirty entry makes all entries of its batch dirty.
    PerRun,
}

/// The dirty bit of a writable huge PMD entry in mprotect (R26). `pmd_modify` in arch/x86/include/asm/pgtable.h. Lost
/// from 6.6 on, until commit f7491d7c81db fixed it in 2026.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectHugeDirty {
    /// It stays.
    Kept,
    /// It is lost: a page that was freed lazily and written again becomes lazily freed again, and its new content can
    /// be dropped.
    Lost,
}

/// The first write to present memory after mprotect made it writable again (R23). `can_change_pte_writable` in
/// mm/mprotect.c, `can_change_pmd_writable` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAfterProtect {
    /// It faults.
    Fault,
    /// It faults in a huge page, and in a page whose PTE is clean.
    CleanFault,
    /// It does not fault.
    NoFault,
}

/// What mremap to a fixed address moves (R24). `mremap_to`, later `remap_move`, in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemapReach {
    /// One mapping, which is not hugetlb. Errors about the start of the range (no mapping, hugetlb) are found after the
    /// target was unmapped.
    OneFoundLate,
    /// One mapping. That the range leaves it is found after the target was unmapped.
    One,
    /// Every mapping in the range, with the gaps between them.
    Many,
}

impl RemapReach {
    /// Whether mremap supports hugetlb mappings. Versions that do not refuse them before they check whether the range
    /// leaves the mapping (`vma_to_resize` in mm/mremap.c).
    pub(super) fn takes_hugetlb(self) -> bool {
        self != RemapReach::OneFoundLate
    }
}

/// The source mapping after `MREMAP_DONTUNMAP` (R20). `copy_vma` in mm/mmap.c, `move_vma` in mm/mremap.c. Changed in
/// 2026, in some stable series only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptSource {
    /// A source that was never written merges with its adjacent copy; one moved as a whole keeps its offsets.
    AsAny,
    /// A source that was never written does not merge with its adjacent copy, which merges with nothing; one moved as a
    /// whole has the offsets of a new mapping.
    Fresh,
}

/// Which page tables mremap moves (R21). `try_realign_addr` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemapTables {
    /// Exactly those of the range.
    Exact,
    /// The whole table, if nothing else is mapped in it below the range.
    Widened,
}

/// A write to a page of a large folio, mapped page by page, that is no longer shared with another process (R27).
/// `wp_can_reuse_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeReuse {
    /// Copies, except for the last page left of the folio.
    LastPage,
    /// Copies.
    Never,
    /// Reuses the page, but copies the last page left of the folio.
    AllButLastPage,
}

/// MADV_POPULATE_* at a hole (R24). `madvise_populate` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PopulateHoles {
    /// It continues after the hole and returns ENOMEM at the end, like other advice.
    PassedOver,
    /// It stops at the hole with ENOMEM.
    Stop,
}

/// The error of madvise where a split would exceed `max_map_count` (R14). `madvise_update_vma` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceAtLimit {
    /// ENOMEM.
    NoMemory,
    /// EAGAIN.
    Again,
}

/// Whether a mapping that grows in place merges with the next (R24). `mremap` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowMerge {
    /// No.
    Never,
    /// Yes, where adjacent new mappings would merge.
    AsMade,
}

/// Which PTEs are dirty after a dirty huge PMD entry is split and the folio stays whole. `__split_huge_pmd_locked` in
/// mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DirtyOnSplit {
    /// None: only the folio is dirty.
    FolioAlone,
    /// All.
    Entries,
}

/// Which large folios MADV_FREE considers shared with other processes, and skips (R9a). `madvise_free_pte_range` in
/// mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgingSharers {
    /// Those that other processes map.
    Known,
    /// Those whose first page is not mapped exactly once. This includes folios whose first page was dropped. The rest
    /// of the PMD range is skipped too.
    FirstPage,
}

/// The error of mmap over part of a hugetlb page, where the replaced mapping cannot be split (R13). `mmap_region` in
/// mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedReplace {
    /// ENOMEM, as for every failure there.
    NoMemory,
    /// EINVAL, like munmap.
    AsUnmap,
}

/// Whether a populate of a hugetlb mapping is charged as faults (R13). `follow_hugetlb_page` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbPopulate {
    /// No.
    Free,
    /// One fault per hugetlb page.
    Charged,
}

/// Whether smaps counts huge pages in mappings that allow no access. `smaps_pmd_entry` in fs/proc/task_mmu.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForbiddenHuge {
    /// In every field.
    Counted,
    /// In no field, although they are resident.
    LeftOut,
}

/// The behaviour of one kernel version wherever versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// The version.
    pub version: KernelVersion,
    /// The first write to a huge zero page.
    pub huge_zero_write: HugeZeroWrite,
    /// Alignment of mmaps without a hint.
    pub map_alignment: MapAlignment,
    /// Sizes between 4 KiB and 2 MiB.
    pub mid_sizes: MidSizes,
    /// The PTE table of a range dropped as a whole.
    pub empty_tables: EmptyTables,
    /// Large folios under MADV_FREE and MADV_COLD.
    pub aging_split: AgingSplit,
    /// Zero-filled pages of a folio that is split.
    pub zeros_on_split: ZerosOnSplit,
    /// MADV_COLLAPSE.
    pub collapse: Collapse,
    /// MADV_DONTNEED on hugetlb.
    pub hugetlb_dontneed: HugetlbDontneed,
    /// Merging where one mapping has no anonymous memory.
    pub anon_merge: AnonMerge,
    /// Merging of new mappings.
    pub fresh_merge: FreshMerge,
    /// The commit charge of memory that stops being writable.
    pub charge_after_protect: ChargeAfterProtect,
    /// Dirty bits under mprotect.
    pub protect_dirty: ProtectDirty,
    /// The dirty bit of a huge page under mprotect.
    pub protect_huge_dirty: ProtectHugeDirty,
    /// Writes after mprotect.
    pub write_after_protect: WriteAfterProtect,
    /// What mremap moves.
    pub remap_reach: RemapReach,
    /// The source of `MREMAP_DONTUNMAP`.
    pub kept_source: KeptSource,
    /// Tables that mremap moves.
    pub remap_tables: RemapTables,
    /// Writes to pages that were shared.
    pub large_reuse: LargeReuse,
    /// Populates at a hole.
    pub populate_holes: PopulateHoles,
    /// The error of madvise at `max_map_count`.
    pub advice_at_limit: AdviceAtLimit,
    /// Merging of mappings that grow.
    pub grow_merge: GrowMerge,
    /// Dirty bits after a split of a huge PMD entry.
    pub dirty_on_split: DirtyOnSplit,
    /// Which folios MADV_FREE considers shared.
    pub aging_sharers: AgingSharers,
    /// The error of mmap over part of a reserved huge page.
    pub refused_replace: RefusedReplace,
    /// The cost of populating hugetlb.
    pub hugetlb_populate: HugetlbPopulate,
    /// Huge pages that smaps leaves out.
    pub forbidden_huge: ForbiddenHuge,
}

impl Rules {
    /// Linux 5.15. From its source.
    pub const LINUX_5_15: Self = Self {
        version: KernelVersion::V5_15,
        huge_zero_write: HugeZeroWrite::Split,
        map_alignment: MapAlignment::Page,
        mid_sizes: MidSizes::Absent,
        empty_tables: EmptyTables::Keep,
        aging_split: AgingSplit::Always,
        zeros_on_split: ZerosOnSplit::Keep,
        collapse: Collapse::Absent,
        hugetlb_dontneed: HugetlbDontneed::Refused,
        anon_merge: AnonMerge::IntoTouched,
        fresh_merge: FreshMerge::AsAny,
        charge_after_protect: ChargeAfterProtect::Kept,
        protect_dirty: ProtectDirty::PerPage,
        protect_huge_dirty: ProtectHugeDirty::Kept,
        write_after_protect: WriteAfterProtect::Fault,
        remap_reach: RemapReach::OneFoundLate,
        kept_source: KeptSource::Fresh,
        remap_tables: RemapTables::Exact,
        large_reuse: LargeReuse::LastPage,
        populate_holes: PopulateHoles::PassedOver,
        advice_at_limit: AdviceAtLimit::NoMemory,
        grow_merge: GrowMerge::Never,
        dirty_on_split: DirtyOnSplit::FolioAlone,
        aging_sharers: AgingSharers::Known,
        refused_replace: RefusedReplace::NoMemory,
        hugetlb_populate: HugetlbPopulate::Free,
        forbidden_huge: ForbiddenHuge::Counted,
    };

    /// Linux 6.1: MADV_COLLAPSE, MADV_DONTNEED of hugetlb, no write fault after mprotect for small pages. From its
    /// source.
    pub const LINUX_6_1: Self = Self {
        version: KernelVersion::V6_1,
        collapse: Collapse::WritablePage,
        hugetlb_dontneed: HugetlbDontneed::ToPool,
        write_after_protect: WriteAfterProtect::CleanFault,
        remap_reach: RemapReach::One,
        kept_source: KeptSource::AsAny,
        fresh_merge: FreshMerge::NextFirst,
        advice_at_limit: AdviceAtLimit::Again,
        grow_merge: GrowMerge::AsMade,
        aging_sharers: AgingSharers::FirstPage,
        forbidden_huge: ForbiddenHuge::LeftOut,
        ..Self::LINUX_5_15
    };

    /// Linux 6.8: sizes between 4 KiB and 2 MiB, alignment of long mappings, no write fault after mprotect for huge
    /// pages. From its source.
    pub const LINUX_6_8: Self = Self {
        version: KernelVersion::V6_8,
        map_alignment: MapAlignment::LongMaps,
        mid_sizes: MidSizes::Present,
        charge_after_protect: ChargeAfterProtect::GivenBack,
        write_after_protect: WriteAfterProtect::NoFault,
        kept_source: KeptSource::Fresh,
        remap_tables: RemapTables::Widened,
        dirty_on_split: DirtyOnSplit::Entries,
        aging_sharers: AgingSharers::Known,
        hugetlb_populate: HugetlbPopulate::Charged,
        forbidden_huge: ForbiddenHuge::Counted,
        ..Self::LINUX_6_1
    };

    /// Linux 6.12 (the stable series): splits drop zero-filled pages, aging keeps whole folios, only multiples of 2 MiB
    /// are aligned. From its source.
    pub const LINUX_6_12: Self = Self {
        version: KernelVersion::V6_12,
        map_alignment: MapAlignment::WholePmds,
        aging_split: AgingSplit::Part,
        zeros_on_split: ZerosOnSplit::ZeroPage,
        hugetlb_dontneed: HugetlbDontneed::ToReserve,
        protect_huge_dirty: ProtectHugeDirty::Lost,
        kept_source: KeptSource::AsAny,
        large_reuse: LargeReuse::Never,
        populate_holes: PopulateHoles::Stop,
        fresh_merge: FreshMerge::AsAny,
        refused_replace: RefusedReplace::AsUnmap,
        ..Self::LINUX_6_8
    };

    /// Linux 6.14: empty tables are freed, a write upgrades a huge zero page to a huge page. From its source.
    pub const LINUX_6_14: Self = Self {
        version: KernelVersion::V6_14,
        huge_zero_write: HugeZeroWrite::Upgrade,
        empty_tables: EmptyTables::Free,
        ..Self::LINUX_6_12
    };

    /// Linux 6.18. Everything was measured on this version.
    pub const LINUX_6_18: Self = Self {
        version: KernelVersion::V6_18,
        collapse: Collapse::AnyTable,
        anon_merge: AnonMerge::Either,
        protect_dirty: ProtectDirty::PerRun,
        protect_huge_dirty: ProtectHugeDirty::Kept,
        remap_reach: RemapReach::Many,
        large_reuse: LargeReuse::AllButLastPage,
        ..Self::LINUX_6_14
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
        }
    }

    /// Whether an anonymous mmap of `pages` pages without a hint is placed on a 2 MiB boundary (R5). If false, it is
    /// placed on a page boundary.
    pub fn map_is_pmd_aligned(&self, pages: u64) -> bool {
        match self.map_alignment {
            MapAlignment::Page => false,
            MapAlignment::LongMaps => pages >= PMD_PAGES,
            MapAlignment::WholePmds => pages > 0 && pages.is_multiple_of(PMD_PAGES),
        }
    }
}

//! The behaviours that differ between kernel versions, each a named switch.
//!
//! What is said of a version was read in that version's source (the file stands with each switch), and measured on 6.18.

use serde::Serialize;

use super::span::PMD_PAGES;
use super::version::KernelVersion;

/// What the first write to a huge zero page does (R4). `do_huge_pmd_wp_page` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugeZeroWrite {
    /// It installs a full huge page.
    Upgrade,
    /// It splits the entry into 512 zero pages and copies the one written.
    Split,
}

/// Where the kernel places an anonymous map that names no address (R5). `__get_unmapped_area` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MapAlignment {
    /// On any page.
    Page,
    /// On a 2 MiB boundary if the map is at least 2 MiB long.
    LongMaps,
    /// On a 2 MiB boundary if the length is a multiple of 2 MiB.
    #[serde(rename = "whole_blocks")]
    WholePmds,
}

/// Folio sizes between 4 KiB and 2 MiB (R3). `alloc_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MidSizes {
    /// There are none, and 2 MiB follows the global mode.
    Absent,
    /// Each size has a mode of its own.
    Present,
}

/// What happens to a PTE table whose whole block is dropped by one DONTNEED (R8'). mm/pt_reclaim.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyTables {
    /// It stays (munmap frees it later, where no mapping is left around it: R21).
    Keep,
    /// It is freed.
    Free,
}

/// Which large folios, mapped page by page, MADV_FREE and MADV_COLD split (R9a). `madvise_free_pte_range` in
/// mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgingSplit {
    /// All they meet.
    Always,
    /// Those that do not lie in the range as a whole.
    Part,
}

/// What a split of a folio maps in place of its zero-filled pages (R10). `try_to_map_unused_to_zeropage` in mm/migrate.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ZerosOnSplit {
    /// Themselves.
    Keep,
    /// The zero page.
    ZeroPage,
}

/// MADV_COLLAPSE (R12'). `madvise_collapse`, `hpage_collapse_scan_pmd` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Collapse {
    /// Not known: EINVAL.
    Absent,
    /// A block needs one page that can be written without a fault.
    WritablePage,
    /// Whatever a table maps is collapsed.
    AnyTable,
}

/// MADV_DONTNEED on a hugetlb mapping (R13). `madvise_dontneed_free_valid_vma` in mm/madvise.c,
/// `__unmap_hugepage_range` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbDontneed {
    /// EINVAL.
    Refused,
    /// Its pages go back to the pool.
    ToPool,
    /// They go back to the pool, and stay promised to the mapping.
    ToReserve,
}

/// When two mappings with equal flags become one although only one has anonymous memory (R19). `is_mergeable_anon_vma`
/// in mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnonMerge {
    /// Only if the one that was there before has it.
    IntoTouched,
    /// Always.
    Either,
}

/// Which neighbours a map made by mmap becomes one with, where one of them was written and the other was not, or both
/// were (R20). `mmap_region` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FreshMerge {
    /// Both if they can be one, else the one before.
    AsAny,
    /// The one behind, and the one before only if it has the same anonymous memory, or alone has any.
    #[serde(rename = "behind_first")]
    NextFirst,
}

/// Whether mprotect gives the charge of memory back that was never written and stops being writable (R18).
/// `mprotect_fixup` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargeAfterProtect {
    /// It stays charged.
    Kept,
    /// It is charged no more.
    GivenBack,
}

/// How mprotect treats the dirty bits of a large folio's entries (R26). `change_pte_range` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectDirty {
    /// Each by itself.
    PerPage,
    /// One dirty entry makes its whole run dirty.
    PerRun,
}

/// What mprotect makes of the dirty bit of a huge page's entry that may be written (R26). `pmd_modify` in
/// arch/x86/include/asm/pgtable.h; lost from 6.6 on, until commit f7491d7c81db mended it in 2026.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectHugeDirty {
    /// It stays.
    Kept,
    /// It is lost: what was freed lazily and written again is free to go once more, with what was written.
    Lost,
}

/// The first write to present memory after mprotect made it writable again (R23). `can_change_pte_writable` in
/// mm/mprotect.c, `can_change_pmd_writable` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAfterProtect {
    /// It takes a fault.
    Fault,
    /// It takes a fault in a huge page, and in a page whose entry is clean.
    CleanFault,
    /// It takes none.
    NoFault,
}

/// What mremap to a fixed address moves (R24). `mremap_to`, later `remap_move`, in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemapReach {
    /// One mapping, and not one of hugetlb pages. That nothing is mapped at the start, or such pages are, is found out when the
    /// target is unmapped already.
    OneFoundLate,
    /// One mapping. That the range leaves it is found out when the target is unmapped already.
    One,
    /// Every mapping in the range, with the gaps.
    Many,
}

impl RemapReach {
    /// Whether mremap knows hugetlb mappings. Where it does not it refuses them before it asks whether the range leaves the
    /// mapping (`vma_to_resize` in mm/mremap.c).
    pub(super) fn takes_hugetlb(self) -> bool {
        self != RemapReach::OneFoundLate
    }
}

/// What `MREMAP_DONTUNMAP` makes of the mapping it leaves behind (R20). `copy_vma` in mm/mmap.c, `move_vma` in
/// mm/mremap.c; changed in 2026, in some stable series only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptSource {
    /// One that was never written becomes one with its copy beside it; one moved as a whole keeps its offsets.
    AsAny,
    /// One that was never written stays apart from its copy beside it, which merges with nothing; one moved as a
    /// whole has the offsets of a fresh mapping.
    Fresh,
}

/// Which page tables mremap moves (R21). `try_realign_addr` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemapTables {
    /// Those of the range.
    Exact,
    /// A whole table where nothing else is mapped below the range.
    Widened,
}

/// The write to a page of a large folio, mapped page by page, that was shared with another process and is no longer
/// (R27). `wp_can_reuse_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeReuse {
    /// It copies, but for the last page that is left of the folio.
    LastPage,
    /// It copies.
    Never,
    /// It uses the page again, but copies the last one that is left of the folio.
    AllButLastPage,
}

/// What a populate by madvise does at a hole (R24). `madvise_populate` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PopulateHoles {
    /// It goes on behind it, and says ENOMEM at the end, as other advice does.
    PassedOver,
    /// It stops there with ENOMEM.
    Stop,
}

/// What madvise says where one mapping more would be too many (R14). `madvise_update_vma` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceAtLimit {
    /// ENOMEM.
    NoMemory,
    /// EAGAIN.
    Again,
}

/// Whether a mapping that grows in place becomes one with the next (R24). `mremap` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowMerge {
    /// It does not.
    Never,
    /// It does, where mappings made side by side do.
    AsMade,
}

/// Which of the entries are dirty that a dirty 2 MiB entry is split into, the page itself kept whole.
/// `__split_huge_pmd_locked` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DirtyOnSplit {
    /// None: the folio remembers.
    FolioAlone,
    /// All.
    Entries,
}

/// What MADV_FREE takes for a large folio that other processes map, and leaves alone (R9a).
/// `madvise_free_pte_range` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgingSharers {
    /// One that others map.
    Known,
    /// One whose first page is not mapped exactly once, so also one whose first page was dropped; the rest of the
    /// block is left alone with it.
    FirstPage,
}

/// What mmap says where the mapping it would replace cannot be cut: the border lies inside a reserved huge page (R13).
/// `mmap_region` in mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedReplace {
    /// ENOMEM, as of everything that goes wrong there.
    NoMemory,
    /// EINVAL, as munmap.
    AsUnmap,
}

/// Whether a populate of a hugetlb mapping is charged as faults (R13). `follow_hugetlb_page` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbPopulate {
    /// It is not.
    Free,
    /// One fault for each of its pages.
    Charged,
}

/// Whether smaps counts huge pages in mappings that allow no access. `smaps_pmd_entry` in fs/proc/task_mmu.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForbiddenHuge {
    /// In everything.
    Counted,
    /// Nowhere, though they are resident.
    LeftOut,
}

/// How one kernel version behaves where versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// Whose rules these are.
    pub version: KernelVersion,
    /// The first write to a huge zero page.
    pub huge_zero_write: HugeZeroWrite,
    /// Placement of maps without an address.
    pub map_alignment: MapAlignment,
    /// Sizes between 4 KiB and 2 MiB.
    pub mid_sizes: MidSizes,
    /// The table of a block dropped as a whole.
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
    /// Merging of fresh maps.
    pub fresh_merge: FreshMerge,
    /// The charge of memory that stops being writable.
    pub charge_after_protect: ChargeAfterProtect,
    /// Dirty bits under mprotect.
    pub protect_dirty: ProtectDirty,
    /// The dirty bit of a huge page under mprotect.
    pub protect_huge_dirty: ProtectHugeDirty,
    /// Writes after mprotect.
    pub write_after_protect: WriteAfterProtect,
    /// What mremap moves.
    pub remap_reach: RemapReach,
    /// What mremap leaves behind.
    pub kept_source: KeptSource,
    /// Tables that mremap moves.
    pub remap_tables: RemapTables,
    /// Writes to what was shared.
    pub large_reuse: LargeReuse,
    /// Populates at a hole.
    pub populate_holes: PopulateHoles,
    /// The error of madvise at `max_map_count`.
    pub advice_at_limit: AdviceAtLimit,
    /// Mappings that grow.
    pub grow_merge: GrowMerge,
    /// Dirty bits of a huge page whose entry is split.
    pub dirty_on_split: DirtyOnSplit,
    /// What MADV_FREE takes for shared.
    pub aging_sharers: AgingSharers,
    /// The error of mmap over part of a reserved huge page.
    pub refused_replace: RefusedReplace,
    /// What a populate of hugetlb costs.
    pub hugetlb_populate: HugetlbPopulate,
    /// What smaps leaves out.
    pub forbidden_huge: ForbiddenHuge,
}

impl Rules {
    /// Linux 5.15: read in its source.
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

    /// Linux 6.1: MADV_COLLAPSE, hugetlb pages that can be dropped, pages writable again at once. Read in its source.
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

    /// Linux 6.8: sizes between 4 KiB and 2 MiB, long maps aligned, huge pages writable again at once. Read in its
    /// source.
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

    /// Linux 6.12 (the stable series): zeros leave at a split, aging keeps whole folios, only whole blocks aligned.
    /// Read in its source.
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

    /// Linux 6.14: empty tables go, huge zero pages become huge pages. Read in its source.
    pub const LINUX_6_14: Self = Self {
        version: KernelVersion::V6_14,
        huge_zero_write: HugeZeroWrite::Upgrade,
        empty_tables: EmptyTables::Free,
        ..Self::LINUX_6_12
    };

    /// Linux 6.18: the version that everything was measured on.
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

    /// Whether an anonymous map of `pages` at an address of the kernel's choice starts on a 2 MiB boundary (R5).
    /// False means: on a page boundary, 2 MiB-aligned only by luck.
    pub fn map_is_pmd_aligned(&self, pages: u64) -> bool {
        match self.map_alignment {
            MapAlignment::Page => false,
            MapAlignment::LongMaps => pages >= PMD_PAGES,
            MapAlignment::WholePmds => pages > 0 && pages.is_multiple_of(PMD_PAGES),
        }
    }
}

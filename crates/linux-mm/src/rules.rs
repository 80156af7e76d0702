//! The behaviours that differ between kernel versions, each as a named switch. `rules_by_version.rs` has the values.

use serde::{Deserialize, Serialize};

use super::version::KernelVersion;

/// The first write to a huge zero page (R4). `do_huge_pmd_wp_page` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugeZeroWrite {
    /// It installs a full huge page.
    AllocateHuge,
    /// It splits the entry into 512 zero pages and copies the one written.
    SplitPmd,
}

/// Alignment of anonymous mmaps without a hint (R5). `__get_unmapped_area` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MmapAlignment {
    /// Any page.
    Page,
    /// A 2 MiB boundary if the length is at least 2 MiB.
    PmdIfLarge,
    /// A 2 MiB boundary if the length is a multiple of 2 MiB.
    PmdIfMultiple,
}

/// Folio sizes between 4 KiB and 2 MiB (R3). `alloc_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MthpSupport {
    /// Not supported; 2 MiB follows the global mode.
    Unsupported,
    /// Each size has its own mode.
    PerSize,
}

/// A PTE table whose whole range one MADV_DONTNEED drops (R8). mm/pt_reclaim.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyPteTables {
    /// It stays. munmap frees it later, if no mapping is left around it (R21).
    Keep,
    /// It is freed.
    Free,
}

/// Which large folios, mapped page by page, MADV_FREE and MADV_COLD split (R9a). `madvise_free_pte_range` in
/// mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadvFreeSplit {
    /// Every one in the range.
    Always,
    /// Those that the range covers only in part.
    IfPartial,
}

/// What a folio split does with zero-filled pages (R10). `try_to_map_unused_to_zeropage` in mm/migrate.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZeroFilledOnSplit {
    /// They stay mapped.
    Keep,
    /// They are replaced by the zero page.
    MapZeroPage,
}

/// MADV_COLLAPSE (R12). `madvise_collapse`, `hpage_collapse_scan_pmd` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collapse {
    /// Not supported: EINVAL.
    Unsupported,
    /// A range needs at least one page that can be written without a fault.
    NeedsWritablePage,
    /// Any range with a PTE table is collapsed.
    NeedsPteTable,
}

/// A range without a PTE table in MADV_COLLAPSE (R12). `madvise_collapse` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollapseWithoutTable {
    /// The call ends there, unless the PMD table is missing, too.
    Ends,
    /// The call goes on with the next range.
    GoesOn,
}

/// MADV_COLLAPSE of part of a 2 MiB range that reaches neither end (R12). `madvise_collapse` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollapseInsideRange {
    /// EINVAL.
    Einval,
    /// It succeeds, as if it reached an end: there is nothing to do.
    Succeeds,
}

/// Which pages of large folios khugepaged counts as shared (R11c). `hpage_collapse_scan_pmd` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedSharedTest {
    /// Those that another process maps, too.
    Page,
    /// All, if another process maps any page of the folio.
    Folio,
}

/// The sizes that khugepaged makes (R11f). `collapse_possible_orders`, `mthp_collapse` in mm/khugepaged.c: all since 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedSizes {
    /// 2 MiB.
    Pmd,
    /// All that a fault may install.
    AllEnabled,
}

/// A range with a lazily freed page whose entry is clean (R11d). `collapse_scan_pmd` in mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KhugepagedLazyFree {
    /// It is collapsed, and the page is kept then.
    Collapsed,
    /// It is left alone, except in droppable memory.
    LeftAlone,
}

/// MADV_DONTNEED on a hugetlb mapping (R13f). `madvise_dontneed_free_valid_vma` in mm/madvise.c,
/// `__unmap_hugepage_range` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbDontneed {
    /// EINVAL.
    Einval,
    /// The pages go back to the pool.
    ToPool,
    /// The pages go back to the pool and stay reserved for the mapping.
    ToReserve,
}

/// Whether two mappings with equal flags merge if only one of them has anonymous memory (R19). `is_mergeable_anon_vma`
/// in mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnonVmaMerge {
    /// Only if the existing one has it.
    ExistingOnly,
    /// Always.
    Either,
}

/// Which neighbours a new mapping of mmap merges with if not all three can merge (R20). `mmap_region` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewVmaMerge {
    /// Both if they can merge, otherwise the previous one.
    BothOrPrev,
    /// The next one; the previous one only if it has the same anon_vma, or if the next has none.
    NextFirst,
}

/// Which neighbours memory added by brk merges with (R20). `brk` and `do_brk_flags` in mm/mmap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeapMerge {
    /// Both, like a new mapping of mmap.
    AsMmap,
    /// Only the previous one, and only if it reaches beyond the start of the heap. So the heap does not merge with
    /// program data that ends where it starts.
    HeapOnly,
}

/// Whether mprotect uncharges never-written memory that stops being writable (R18b). `mprotect_fixup` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MprotectCommitCharge {
    /// It stays charged.
    Kept,
    /// It is uncharged.
    Uncharged,
}

/// Dirty bits of a large folio's PTEs in mprotect (R26). `change_pte_range` in mm/mprotect.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MprotectPteDirty {
    /// Each entry keeps its own.
    PerPte,
    /// One dirty entry makes all entries of its batch dirty.
    PerBatch,
}

/// The dirty bit of a writable huge PMD entry in mprotect (R26). `pmd_modify` in arch/x86/include/asm/pgtable.h. Lost
/// from 6.6 on, until commit f7491d7c81db fixed it in 2026.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MprotectPmdDirty {
    /// It stays.
    Kept,
    /// It is lost: a page that was freed lazily and written again becomes lazily freed again, and its new content can
    /// be dropped.
    Lost,
}

/// The first write to present memory after mprotect made it writable again (R23). `can_change_pte_writable` in
/// mm/mprotect.c, `can_change_pmd_writable` in mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAfterMprotect {
    /// It faults.
    Fault,
    /// It faults in a huge page, and in a page whose PTE is clean.
    FaultIfClean,
    /// It does not fault.
    NoFault,
}

/// What mremap to a fixed address moves (R24). `mremap_to`, later `remap_move`, in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MremapRange {
    /// One mapping, which is not hugetlb. Errors about the start of the range (no mapping, hugetlb) are found after the
    /// target was unmapped.
    OneVmaLateChecks,
    /// One mapping. That the range leaves it is found after the target was unmapped.
    OneVma,
    /// Every mapping in the range, with the gaps between them.
    ManyVmas,
}

impl MremapRange {
    /// Whether mremap supports hugetlb mappings. Versions that do not refuse them before they check whether the range
    /// leaves the mapping (`vma_to_resize` in mm/mremap.c).
    pub(super) fn takes_hugetlb(self) -> bool {
        self != MremapRange::OneVmaLateChecks
    }
}

/// The source mapping after `MREMAP_DONTUNMAP` (R20). `copy_vma` in mm/mmap.c, `move_vma` in mm/mremap.c. Changed in
/// 2026, in some stable series only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DontunmapSource {
    /// A source that was never written merges with its adjacent copy; one moved as a whole keeps its offsets.
    Unchanged,
    /// A source that was never written does not merge with its adjacent copy, which merges with nothing; one moved as a
    /// whole has the offsets of a new mapping.
    AsNew,
}

/// Which page tables mremap moves (R21). `try_realign_addr` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MremapPageTables {
    /// Exactly those of the range.
    RangeOnly,
    /// The whole table, if nothing else is mapped in it below the range.
    WholeTable,
}

/// A write to a page of a large folio, mapped page by page, that is no longer shared with another process (R27).
/// `wp_can_reuse_anon_folio` in mm/memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeFolioReuse {
    /// Copies, except for the last page left of the folio.
    LastPage,
    /// Copies.
    Never,
    /// Reuses the page, but copies the last page left of the folio.
    AllButLastPage,
}

/// MADV_POPULATE_* at a hole (R24). `madvise_populate` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadvPopulateHoles {
    /// It continues after the hole and returns ENOMEM at the end, like other advice.
    Skip,
    /// It stops at the hole with ENOMEM.
    Stop,
}

/// The error of madvise where a split would exceed `max_map_count` (R14). `madvise_update_vma` in mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadviseMapCountErrno {
    /// ENOMEM.
    Enomem,
    /// EAGAIN.
    Eagain,
}

/// Whether a mapping that grows in place merges with the next (R24a). `mremap` in mm/mremap.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MremapGrowMerge {
    /// No.
    Never,
    /// Yes, where adjacent new mappings would merge.
    AsMmap,
}

/// Which PTEs are dirty after a dirty huge PMD entry is split and the folio stays whole. `__split_huge_pmd_locked` in
/// mm/huge_memory.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PmdSplitDirty {
    /// None: only the folio is dirty.
    FolioOnly,
    /// All.
    Ptes,
}

/// Which large folios MADV_FREE considers shared with other processes, and skips (R9d). `madvise_free_pte_range` in
/// mm/madvise.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MadvFreeSharedTest {
    /// Those that other processes map.
    OtherMappers,
    /// Those whose first page is not mapped exactly once. This includes folios whose first page was dropped. The rest
    /// of the PMD range is skipped too.
    FirstPageMapcount,
}

/// The error of mmap over part of a hugetlb page, where the replaced mapping cannot be split (R13c). `mmap_region` in
/// mm/mmap.c, later mm/vma.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MmapFixedHugetlbErrno {
    /// ENOMEM, as for every failure there.
    Enomem,
    /// EINVAL, like munmap.
    Einval,
}

/// Whether a populate of a hugetlb mapping is charged as faults (R13). `follow_hugetlb_page` in mm/hugetlb.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugetlbPopulateFaults {
    /// No.
    NotCharged,
    /// One fault per hugetlb page.
    Charged,
}

/// Whether smaps counts huge pages in mappings that allow no access. `smaps_pmd_entry` in fs/proc/task_mmu.c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmapsProtNoneHuge {
    /// In every field.
    Counted,
    /// In no field, although they are resident.
    Omitted,
}

/// `MAP_STACK` (R30). `calc_vm_flag_bits` in include/linux/mman.h: commit c4608d1bf7c6 "mm: mmap: map MAP_STACK to
/// VM_NOHUGEPAGE" (6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MapStack {
    /// No effect.
    Ignored,
    /// The mapping gets no huge pages, as after `MADV_NOHUGEPAGE`.
    NoHugePage,
}

/// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE` (R32). `is_valid_guard_vma` in mm/madvise.c: since 6.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardPages {
    /// Not supported: EINVAL.
    Unsupported,
    /// In anonymous memory.
    Anonymous,
    /// In anonymous memory and files (6.15).
    AnonymousAndFiles,
}

/// `MADV_DONTNEED_LOCKED` (R29b). `madvise_behavior_valid` in mm/madvise.c: since 5.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DontneedLocked {
    /// Not supported: EINVAL.
    Unsupported,
    /// It also drops locked pages.
    Supported,
}

/// The behaviour of one kernel version wherever versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The version.
    pub version: KernelVersion,
    /// The first write to a huge zero page.
    pub huge_zero_write: HugeZeroWrite,
    /// Alignment of mmaps without a hint.
    pub mmap_alignment: MmapAlignment,
    /// Sizes between 4 KiB and 2 MiB.
    pub mthp_support: MthpSupport,
    /// The PTE table of a range dropped as a whole.
    pub empty_pte_tables: EmptyPteTables,
    /// Large folios under MADV_FREE and MADV_COLD.
    pub madv_free_split: MadvFreeSplit,
    /// Zero-filled pages of a folio that is split.
    pub zero_filled_on_split: ZeroFilledOnSplit,
    /// MADV_COLLAPSE.
    pub collapse: Collapse,
    /// MADV_COLLAPSE at a range without a PTE table.
    #[serde(default = "collapse_without_table_before")]
    pub collapse_without_table: CollapseWithoutTable,
    /// MADV_COLLAPSE inside a range.
    #[serde(default = "collapse_inside_range_before")]
    pub collapse_inside_range: CollapseInsideRange,
    /// Pages of large folios that khugepaged counts as shared.
    #[serde(default = "khugepaged_shared_test_newest")]
    pub khugepaged_shared_test: KhugepagedSharedTest,
    /// The sizes that khugepaged makes.
    #[serde(default = "khugepaged_sizes_before")]
    pub khugepaged_sizes: KhugepagedSizes,
    /// What khugepaged does about lazily freed pages.
    #[serde(default = "khugepaged_lazy_free_before")]
    pub khugepaged_lazy_free: KhugepagedLazyFree,
    /// MADV_DONTNEED on hugetlb.
    pub hugetlb_dontneed: HugetlbDontneed,
    /// Merging where one mapping has no anonymous memory.
    pub anon_vma_merge: AnonVmaMerge,
    /// Merging of new mappings.
    pub new_vma_merge: NewVmaMerge,
    /// Merging of memory added by brk.
    pub heap_merge: HeapMerge,
    /// The commit charge of memory that stops being writable.
    pub mprotect_commit_charge: MprotectCommitCharge,
    /// Dirty bits under mprotect.
    pub mprotect_pte_dirty: MprotectPteDirty,
    /// The dirty bit of a huge page under mprotect.
    pub mprotect_pmd_dirty: MprotectPmdDirty,
    /// Writes after mprotect.
    pub write_after_mprotect: WriteAfterMprotect,
    /// What mremap moves.
    pub mremap_range: MremapRange,
    /// The source of `MREMAP_DONTUNMAP`.
    pub dontunmap_source: DontunmapSource,
    /// Tables that mremap moves.
    pub mremap_page_tables: MremapPageTables,
    /// Writes to pages that were shared.
    pub large_folio_reuse: LargeFolioReuse,
    /// Populates at a hole.
    pub madv_populate_holes: MadvPopulateHoles,
    /// The error of madvise at `max_map_count`.
    pub madvise_map_count_errno: MadviseMapCountErrno,
    /// Merging of mappings that grow.
    pub mremap_grow_merge: MremapGrowMerge,
    /// Dirty bits after a split of a huge PMD entry.
    pub pmd_split_dirty: PmdSplitDirty,
    /// Which folios MADV_FREE considers shared.
    pub madv_free_shared_test: MadvFreeSharedTest,
    /// The error of mmap over part of a reserved huge page.
    pub mmap_fixed_hugetlb_errno: MmapFixedHugetlbErrno,
    /// The cost of populating hugetlb.
    pub hugetlb_populate_faults: HugetlbPopulateFaults,
    /// Huge pages that smaps leaves out.
    pub smaps_prot_none_huge: SmapsProtNoneHuge,
    /// Mappings with `MAP_STACK`.
    pub map_stack: MapStack,
    /// MADV_DONTNEED_LOCKED.
    pub dontneed_locked: DontneedLocked,
    /// Guard pages.
    pub guard_pages: GuardPages,
}

/// For results without this rule.
fn khugepaged_shared_test_newest() -> KhugepagedSharedTest {
    Rules::LINUX_6_18.khugepaged_shared_test
}

/// For results without this rule, which are older than Linux 7.2.
fn collapse_without_table_before() -> CollapseWithoutTable {
    CollapseWithoutTable::Ends
}

/// For results without this rule, which are older than Linux 7.2.
fn collapse_inside_range_before() -> CollapseInsideRange {
    CollapseInsideRange::Einval
}

/// For results without this rule, which are older than Linux 7.2.
fn khugepaged_sizes_before() -> KhugepagedSizes {
    KhugepagedSizes::Pmd
}

/// For results without this rule, which are older than Linux 7.2.
fn khugepaged_lazy_free_before() -> KhugepagedLazyFree {
    KhugepagedLazyFree::Collapsed
}

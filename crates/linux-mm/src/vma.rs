//! One mapping (VMA), and the conditions for merging two of them (R6, R18).

use std::num::NonZeroU32;
use std::ops::Range;

use serde::Serialize;

use super::config::ThpAdvice;
use super::lock::Locked;
use super::rules::AnonVmaMerge;
use super::span::{pages_of, pmd_of};
use super::vma_advice::OtherAdvice;

/// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`.
const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;

/// The protection of a mapping: the combination of `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`. Mappings with different
/// protections do not merge (R6), even where the hardware allows the same accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Protection {
    /// No access: `PROT_NONE`.
    None = 0,
    /// Read only.
    Read = READ,
    /// `PROT_WRITE` alone: x86 allows reads, too.
    Write = WRITE,
    /// Read and write.
    ReadWrite = READ | WRITE,
    /// `PROT_EXEC` alone: x86 without protection keys allows reads, too.
    Execute = EXECUTE,
    /// Read and execute.
    ReadExecute = READ | EXECUTE,
    /// `PROT_WRITE | PROT_EXEC`: x86 allows reads, too.
    WriteExecute = WRITE | EXECUTE,
    /// Read, write and execute.
    ReadWriteExecute = READ | WRITE | EXECUTE,
}

impl Protection {
    /// The protection with these rights.
    pub fn from_prot(read: bool, write: bool, execute: bool) -> Self {
        match (read, write, execute) {
            (false, false, false) => Self::None,
            (true, false, false) => Self::Read,
            (false, true, false) => Self::Write,
            (true, true, false) => Self::ReadWrite,
            (false, false, true) => Self::Execute,
            (true, false, true) => Self::ReadExecute,
            (false, true, true) => Self::WriteExecute,
            (true, true, true) => Self::ReadWriteExecute,
        }
    }

    /// Whether the program may write.
    #[inline]
    pub fn is_writable(self) -> bool {
        self as u8 & WRITE != 0
    }

    /// Whether the program may read. On x86 every protection but `PROT_NONE` allows reads (`access_error` in
    /// arch/x86/mm/fault.c). Exception: with protection keys `PROT_EXEC` alone forbids them. This is not modelled.
    #[inline]
    pub fn is_readable(self) -> bool {
        self != Self::None
    }

    /// Whether `PROT_READ` is set. The kernel's own accesses check it (`check_vma_flags` in mm/gup.c).
    pub(super) fn has_read(self) -> bool {
        self as u8 & READ != 0
    }
}

/// The properties that two mappings must share to merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VmaFlags {
    pub protection: Protection,
    pub thp: ThpAdvice,
    pub noreserve: bool,
    /// VM_ACCOUNT: the pages are charged against the commit limit (R18).
    pub account: bool,
    pub hugetlb: bool,
    /// VM_LOCKED, VM_LOCKONFAULT (R29).
    pub locked: Locked,
    /// What other advice set.
    pub other: OtherAdvice,
    /// The name given by `PR_SET_VMA_ANON_NAME`, as a number.
    pub name: Option<u32>,
    /// The file or other object mapped here; `None` for anonymous memory and hugetlb. Not a flag of the kernel, but
    /// mappings of different files do not merge either.
    pub unmodelled: Option<FileId>,
    /// The mapping of `/dev/zero` whose anonymous memory this is. Mappings of different files do not merge.
    pub device: Option<FileId>,
}

impl VmaFlags {
    /// The flags of an ordinary mapping, not charged to the commit limit.
    pub fn new(protection: Protection) -> Self {
        Self {
            protection,
            thp: ThpAdvice::None,
            noreserve: false,
            account: false,
            hugetlb: false,
            locked: Locked::No,
            other: OtherAdvice::default(),
            name: None,
            unmodelled: None,
            device: None,
        }
    }
}

/// Identifies one call that maps a file. Its pieces merge again, but not with other mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(pub NonZeroU32);

/// Identifies an anon_vma of the kernel. Mappings with the same anon_vma may merge (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnonId(pub u64);

/// A mapping: pages `start..end` with one set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vma {
    pub start: u64,
    pub end: u64,
    pub flags: VmaFlags,
    /// pgoff minus address, in pages. Equal on both sides of a boundary where pgoff is contiguous (R18).
    pub displacement: i64,
    /// Absent until the first write fault or huge zero fault (R19).
    pub anon: Option<AnonId>,
    /// The mapping inherited its anon_vma at a fork. It never merges with a mapping without one.
    pub inherited: bool,
    /// The advice against huge pages comes from `MAP_STACK`, in the whole mapping. The kernel does not record this.
    pub is_stack: bool,
}

impl Vma {
    pub fn pages(&self) -> Range<u64> {
        self.start..self.end
    }

    pub fn contains(&self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// Whether the mapping is not anonymous memory: its pages are not modelled.
    pub fn is_unmodelled(&self) -> bool {
        self.flags.unmodelled.is_some()
    }

    /// Whether the kernel knows a file of the mapping.
    pub fn has_file(&self) -> bool {
        self.flags.hugetlb || self.is_unmodelled() || self.flags.device.is_some()
    }

    /// Whether a boundary at `at` would split this mapping in two.
    pub fn has_inside(&self, at: u64) -> bool {
        self.start < at && at < self.end
    }

    /// Whether the mapping covers the whole PMD range of `page` (R1c).
    pub fn covers_pmd_of(&self, page: u64) -> bool {
        let pmd = pages_of(pmd_of(page));
        self.start <= pmd.start && pmd.end <= self.end
    }

    /// Whether `next` continues this mapping with the same flags and contiguous pgoff (R6, R18).
    pub fn continues_in(&self, next: &Vma) -> bool {
        // Each hugetlb mapping has its own file and never merges.
        self.end == next.start
            && !self.flags.hugetlb
            && self.flags == next.flags
            && self.displacement == next.displacement
    }

    /// Whether the anon_vmas allow this mapping to merge with an existing neighbour (R19).
    pub fn anon_fits(&self, neighbour: &Vma, rule: AnonVmaMerge) -> bool {
        match (neighbour.anon, self.anon) {
            (Some(theirs), Some(ours)) => theirs == ours,
            (None, Some(_)) => rule == AnonVmaMerge::Either && !self.inherited,
            (Some(_), None) => !neighbour.inherited,
            (None, None) => true,
        }
    }

    /// Whether the adjacent mapping `other` can share this mapping's anon_vma: only their protections and
    /// names may differ (R19).
    pub fn can_share_anon_with(&self, other: &Vma) -> bool {
        let (protection, name) = (other.flags.protection, other.flags.name);
        let flags = VmaFlags { protection, name, ..self.flags };
        flags == other.flags && !self.inherited && self.displacement == other.displacement && !self.flags.hugetlb
    }
}

/// Two anon_vmas are compatible if they are equal or one of them is absent (R19).
pub(super) fn anon_compatible(a: Option<AnonId>, b: Option<AnonId>) -> bool {
    a.is_none() || b.is_none() || a == b
}

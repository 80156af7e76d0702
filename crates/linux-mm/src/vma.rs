//! One mapping (VMA), and the conditions for merging two of them (R6, R18).

use std::ops::Range;

use serde::Serialize;

use super::config::ThpAdvice;
use super::lock::Locked;
use super::rules::AnonVmaMerge;
use super::span::{pages_of, pmd_of};

/// The protection of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// No access: `PROT_NONE`.
    None,
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
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
}

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
}

impl Vma {
    pub fn pages(&self) -> Range<u64> {
        self.start..self.end
    }

    pub fn contains(&self, page: u64) -> bool {
        self.start <= page && page < self.end
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

    /// Whether the adjacent mapping `other` can share this mapping's anon_vma: only their protections may differ (R19).
    pub fn can_share_anon_with(&self, other: &Vma) -> bool {
        let flags = VmaFlags { protection: other.flags.protection, ..self.flags };
        flags == other.flags && !self.inherited && self.displacement == other.displacement && !self.flags.hugetlb
    }
}

/// Two anon_vmas are compatible if they are equal or one of them is absent (R19).
pub(super) fn anon_compatible(a: Option<AnonId>, b: Option<AnonId>) -> bool {
    a.is_none() || b.is_none() || a == b
}

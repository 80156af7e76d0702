//! One mapping (VMA) and when two of them can be one (R6, R18).

use std::ops::Range;

use serde::Serialize;

use super::config::ThpAdvice;
use super::lock::Locked;
use super::rules::AnonMerge;
use super::span::{pages_of, pmd_of};

/// What a program may do with the pages of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Nothing: `PROT_NONE`.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

/// The properties that two mappings must share to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VmaFlags {
    pub protection: Protection,
    pub thp: ThpAdvice,
    pub noreserve: bool,
    /// VM_ACCOUNT: the pages are charged to the commit limit (R18).
    pub account: bool,
    pub hugetlb: bool,
    /// VM_LOCKED, VM_LOCKONFAULT (R29).
    pub locked: Locked,
}

/// Stands for the kernel's anon_vma: mappings that share one may merge (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AnonId(pub u64);

/// A mapping: pages `start..end` with one set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vma {
    pub start: u64,
    pub end: u64,
    pub flags: VmaFlags,
    /// How far the pages were moved since they were numbered (pgoff minus address, in pages); equal where pgoff is
    /// contiguous across a border (R18).
    pub displacement: i64,
    /// Absent until the first write fault or huge zero fault (R19).
    pub anon: Option<AnonId>,
    /// The mapping had its anonymous memory from the parent of a fork; it never merges with one that has none.
    pub inherited: bool,
}

impl Vma {
    pub fn pages(&self) -> Range<u64> {
        self.start..self.end
    }

    pub fn contains(&self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// Whether `at` is a border that would cut this mapping in two.
    pub fn has_inside(&self, at: u64) -> bool {
        self.start < at && at < self.end
    }

    /// Whether the whole 2 MiB block of `page` lies in the mapping (R1c).
    pub fn covers_pmd_of(&self, page: u64) -> bool {
        let pmd = pages_of(pmd_of(page));
        self.start <= pmd.start && pmd.end <= self.end
    }

    /// Whether `next` continues this mapping with the same flags and numbering (R6, R18).
    pub fn continues_in(&self, next: &Vma) -> bool {
        // hugetlb mappings have a file each and are never merged.
        self.end == next.start
            && !self.flags.hugetlb
            && self.flags == next.flags
            && self.displacement == next.displacement
    }

    /// Whether a neighbour that was there before can be one with this mapping, as far as anonymous memory goes (R19).
    pub fn anon_fits(&self, neighbour: &Vma, rule: AnonMerge) -> bool {
        match (neighbour.anon, self.anon) {
            (Some(theirs), Some(ours)) => theirs == ours,
            (None, Some(_)) => rule == AnonMerge::Either && !self.inherited,
            (Some(_), None) => !neighbour.inherited,
            (None, None) => true,
        }
    }

    /// Whether this adjacent mapping's anon_vma serves `other` too: only the protection may differ (R19).
    pub fn can_share_anon_with(&self, other: &Vma) -> bool {
        let flags = VmaFlags { protection: other.flags.protection, ..self.flags };
        flags == other.flags && !self.inherited && self.displacement == other.displacement && !self.flags.hugetlb
    }
}

/// Two anon_vmas can be one if they are equal or one of them is absent (R19).
pub(super) fn anon_compatible(a: Option<AnonId>, b: Option<AnonId>) -> bool {
    a.is_none() || b.is_none() || a == b
}

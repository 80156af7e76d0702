//! Results of operations: installs, errors, signals and running totals.

use serde::Serialize;
use thiserror::Error;

/// The kind of an install, which makes a page-table entry present or upgrades it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum InstallKind {
    /// A fresh 4 KiB page.
    #[serde(rename = "base_4k")]
    Base4k,
    /// A fresh folio between 8 KiB and 1 MiB, installed by one fault.
    #[serde(rename = "mthp")]
    Mthp,
    /// A 2 MiB huge page: fresh, collapsed, or in place of a huge zero page on a write.
    #[serde(rename = "thp")]
    Thp,
    /// A 2 MiB page of the hugetlb pool, or its upgrade from read-only to writable.
    #[serde(rename = "hugetlb")]
    Hugetlb,
    /// The shared zero page, 4 KiB or 2 MiB.
    #[serde(rename = "zero")]
    Zero,
    /// A 4 KiB page that a write installs in place of a zero page or of a page that may not be written in place.
    #[serde(rename = "cow")]
    Cow,
}

impl InstallKind {
    /// Every kind, in the order of [`Counters::installs`].
    pub const ALL: [Self; 6] = [Self::Base4k, Self::Mthp, Self::Thp, Self::Hugetlb, Self::Zero, Self::Cow];
}

/// One install: the pages that one fault makes present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// What was installed.
    pub kind: InstallKind,
    /// The first page covered. If the install covers more than one page, this is at or below the touched page.
    pub first_page: u64,
    /// Pages covered: 1, 512 for a 2 MiB entry, or the size of an mTHP.
    pub pages: u64,
}

/// Adjacent installs of one kind by one operation, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallRun {
    /// What was installed.
    pub kind: InstallKind,
    /// The first page covered.
    pub first_page: u64,
    /// Pages covered by the whole run.
    pub pages: u64,
    /// Installs in the run, each of `pages / installs` pages.
    pub installs: u64,
}

/// The result of a system call. Installs made before an error stay (R24).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// What the call returned.
    pub result: Result<(), Errno>,
    /// Installs, in order.
    pub installs: Vec<InstallRun>,
}

impl Outcome {
    /// An outcome without installs.
    pub(super) fn of(result: Result<(), Errno>) -> Self {
        Self { result, installs: Vec::new() }
    }
}

impl From<Install> for InstallRun {
    fn from(Install { kind, first_page, pages }: Install) -> Self {
        Self { kind, first_page, pages, installs: 1 }
    }
}

/// Appends installs, joined to the last run if they continue that run.
pub(super) fn append(runs: &mut Vec<InstallRun>, next: InstallRun) {
    if let Some(run) = runs.last_mut() {
        let adjacent = run.first_page + run.pages == next.first_page;
        if run.kind == next.kind && adjacent && run.pages * next.installs == run.installs * next.pages {
            run.pages += next.pages;
            run.installs += next.installs;
            return;
        }
    }
    runs.push(next);
}

/// The error of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize)]
pub enum Errno {
    /// Temporarily out of resources: returned by madvise if a split would exceed `max_map_count`.
    #[error("EAGAIN")]
    #[serde(rename = "EAGAIN")]
    Again,
    /// Not an anonymous mapping, where one is needed.
    #[error("EBADF")]
    #[serde(rename = "EBADF")]
    BadFile,
    /// A bad address.
    #[error("EFAULT")]
    #[serde(rename = "EFAULT")]
    Fault,
    /// A memory limit without room for a huge page: returned by `MADV_COLLAPSE`.
    #[error("EBUSY")]
    #[serde(rename = "EBUSY")]
    Busy,
    /// An invalid argument.
    #[error("EINVAL")]
    #[serde(rename = "EINVAL")]
    Invalid,
    /// Out of memory or mappings, or a hole in the range.
    #[error("ENOMEM")]
    #[serde(rename = "ENOMEM")]
    NoMemory,
}

/// The signal raised by a program access that fails (R22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize)]
pub enum Signal {
    /// No mapping, or a protection that forbids the access.
    #[error("SIGSEGV")]
    #[serde(rename = "SIGSEGV")]
    Segv,
    /// The hugetlb pool is empty (R13a).
    #[error("SIGBUS")]
    #[serde(rename = "SIGBUS")]
    Bus,
}

/// Running totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// hugetlb pages that a parent wrote after a fork while the pool was empty: they are not copied, and the children
    /// lose them (R13b).
    pub pages_kept_from_children: u64,
    /// Installs by kind, in the order of [`InstallKind::ALL`].
    pub installs: [u64; InstallKind::ALL.len()],
    /// Faults charged to `ru_minflt`, by accesses and by populate.
    pub faults: u64,
    /// #PF exceptions of the program: perf `page-faults`. A populate takes no exception; a failing access takes one.
    pub traps: u64,
    /// Faults that only restored write permission to a present page.
    pub reuses: u64,
    /// PMD entries of huge pages and huge zero pages that were split into a PTE table (`thp_split_pmd`).
    pub pmd_splits: u64,
    /// Large folios split into pages.
    pub folio_splits: u64,
    /// Pages that khugepaged can collapse: mapped by PTEs where a huge page is allowed. Excludes pages of split huge
    /// pages.
    pub collapsible_pages: u64,
}

impl Counters {
    /// Installs of one kind.
    pub fn installs_of(&self, kind: InstallKind) -> u64 {
        self.installs[kind as usize]
    }

    /// Installs of every kind.
    pub fn installs_total(&self) -> u64 {
        self.installs.iter().sum()
    }

    pub(super) fn count_installs(&mut self, kind: InstallKind, installs: u64) {
        self.installs[kind as usize] += installs;
    }
}

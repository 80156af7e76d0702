//! What an operation did: installs, errors and signals, and the running totals.

use serde::Serialize;
use thiserror::Error;

/// What a page-table entry was made to hold when it became present or was upgraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum InstallKind {
    /// A fresh 4 KiB page.
    #[serde(rename = "base_4k")]
    Base4k,
    /// A fresh folio between 8 KiB and 1 MiB, by one fault.
    #[serde(rename = "mthp")]
    Mthp,
    /// A 2 MiB huge page: fresh, collapsed, or by the write that upgrades a huge zero page.
    #[serde(rename = "thp")]
    Thp,
    /// A 2 MiB page of the hugetlb pool, or its upgrade from read-only to writable.
    #[serde(rename = "hugetlb")]
    Hugetlb,
    /// The shared zero page, 4 KiB or 2 MiB.
    #[serde(rename = "zero")]
    Zero,
    /// A 4 KiB page in place of a zero page, or of one that may not be written in place, by a write.
    #[serde(rename = "cow")]
    Cow,
}

impl InstallKind {
    /// Every kind, in the order of [`Counters::installs`].
    pub const ALL: [Self; 6] = [Self::Base4k, Self::Mthp, Self::Thp, Self::Hugetlb, Self::Zero, Self::Cow];
}

/// One install: one fault's worth of pages made present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// What was installed.
    pub kind: InstallKind,
    /// The first page it covers; for everything larger than a page this lies below or at the page touched.
    pub first_page: u64,
    /// Pages covered: 1, 512 for a 2 MiB entry, or the size of an mTHP.
    pub pages: u64,
}

/// Adjacent installs of one kind, in rising order, by one operation.
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

/// What a system call did. Installs made before an error stay (R24).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// What the call returned.
    pub result: Result<(), Errno>,
    /// What it installed, in the order it did.
    pub installs: Vec<InstallRun>,
}

impl Outcome {
    /// An outcome without installs.
    pub(super) fn of(result: Result<(), Errno>) -> Self {
        Self { result, installs: Vec::new() }
    }
}

/// Appends `install`, as part of the last run where it continues that run.
pub(super) fn append(runs: &mut Vec<InstallRun>, install: Install) {
    if let Some(run) = runs.last_mut() {
        let adjacent = run.first_page + run.pages == install.first_page;
        if run.kind == install.kind && adjacent && run.pages == run.installs * install.pages {
            run.pages += install.pages;
            run.installs += 1;
            return;
        }
    }
    runs.push(InstallRun { kind: install.kind, first_page: install.first_page, pages: install.pages, installs: 1 });
}

/// Why a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize)]
pub enum Errno {
    /// Resources are short for now: what madvise says where a split would pass `max_map_count`.
    #[error("EAGAIN")]
    #[serde(rename = "EAGAIN")]
    Again,
    /// A bad address.
    #[error("EFAULT")]
    #[serde(rename = "EFAULT")]
    Fault,
    /// An argument that cannot be.
    #[error("EINVAL")]
    #[serde(rename = "EINVAL")]
    Invalid,
    /// Out of memory, mappings, or a hole in the range.
    #[error("ENOMEM")]
    #[serde(rename = "ENOMEM")]
    NoMemory,
}

/// What a program access that cannot be served brings (R22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize)]
pub enum Signal {
    /// No mapping, or one that forbids the access.
    #[error("SIGSEGV")]
    #[serde(rename = "SIGSEGV")]
    Segv,
    /// The hugetlb pool is empty (R13).
    #[error("SIGBUS")]
    #[serde(rename = "SIGBUS")]
    Bus,
}

/// Running totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Reserved huge pages that were not copied after a fork, the pool being empty: the child loses them (R13).
    pub pages_kept_from_children: u64,
    /// Installs by kind, in the order of [`InstallKind::ALL`].
    pub installs: [u64; InstallKind::ALL.len()],
    /// Faults charged to `ru_minflt`: by access and by populate.
    pub faults: u64,
    /// Exceptions taken by the program: perf `page-faults`. Populate takes none, an access that fails takes one.
    pub traps: u64,
    /// Faults that only gave back the permission to write to what was there.
    pub reuses: u64,
    /// 2 MiB entries split into a PTE table (`thp_split_pmd`): huge pages and huge zero pages.
    pub entry_splits: u64,
    /// Large folios split into pages.
    pub folio_splits: u64,
    /// Pages in entries of their own where a huge page may stand: what khugepaged finds, entries of split huge pages apart.
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

    pub(super) fn count_install(&mut self, kind: InstallKind) {
        self.installs[kind as usize] += 1;
    }
}

//! The effects of an operation, predicted or measured.

use std::fmt;

use hksim_linux_mm::{Errno, PageState};
use serde::{Serialize, Serializer};

/// The result and cost of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallResult {
    /// The return value of the system call; for a touch, the number of pages that failed.
    pub ret: i64,
    /// The error number, or 0 if there was no error. JSON has the error's name or null.
    #[serde(serialize_with = "errno_name")]
    pub errno: i32,
    /// The increase of `ru_minflt`.
    pub faults: u64,
    /// Page-fault exceptions, as perf counts them.
    pub traps: u64,
}

/// Consecutive pages in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PageRun(pub PageState, pub u64);

/// The state of the arena after an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArenaState {
    /// Every page of the arena.
    pub pages: Vec<PageRun>,
    /// `Rss` of smaps.
    pub rss_bytes: u64,
    /// `AnonHugePages`.
    pub anon_huge_bytes: u64,
    /// `LazyFree` of smaps, after the kernel's per-CPU lists were drained.
    pub lazy_free_bytes: u64,
    /// Mappings.
    pub vmas: u64,
    /// `VmPTE`, minus its value before the script.
    pub page_table_bytes: u64,
    /// `thp_split_pmd` since the start of the script. The counter is machine-wide, so other processes can add to it.
    pub pmd_splits: u64,
}

/// The observed effects of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Observation {
    /// Result and cost.
    pub did: CallResult,
    /// The state of the arena afterwards.
    pub left: ArenaState,
}

const ERRNOS: [(i32, &str); 10] = [
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::EPERM, "EPERM"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EINVAL, "EINVAL"),
];

/// The number of an error of the model.
pub(crate) fn errno_number(errno: Errno) -> i32 {
    match errno {
        Errno::Again => libc::EAGAIN,
        Errno::BadFile => libc::EBADF,
        Errno::Busy => libc::EBUSY,
        Errno::Fault => libc::EFAULT,
        Errno::Invalid => libc::EINVAL,
        Errno::NoMemory => libc::ENOMEM,
    }
}

fn errno_name<S: Serializer>(errno: &i32, to: S) -> Result<S::Ok, S::Error> {
    match (errno, ERRNOS.iter().find(|(number, _)| number == errno)) {
        (0, _) => to.serialize_none(),
        (_, Some((_, name))) => to.serialize_str(name),
        (number, None) => to.serialize_str(&format!("errno {number}")),
    }
}

const LETTERS: [(PageState, char); 7] = [
    (PageState::None, '-'),
    (PageState::Zero, 'z'),
    (PageState::Base, 'b'),
    (PageState::Mthp, 'm'),
    (PageState::Thp, 'T'),
    (PageState::HugeZero, 'Z'),
    (PageState::Hugetlb, 'H'),
];

impl fmt::Display for PageRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = LETTERS.iter().find(|(state, _)| *state == self.0).map_or('?', |(_, letter)| *letter);
        write!(out, "{letter} {}", self.1)
    }
}

impl Observation {
    /// Parses the output of a child: the numbers after `op`, and the text after `st`.
    pub fn read(op: &str, state: &str) -> Option<Self> {
        let mut op = op.split(' ');
        let did = CallResult {
            ret: op.next()?.parse().ok()?,
            errno: op.next()?.parse().ok()?,
            faults: op.next()?.parse().ok()?,
            traps: op.next()?.parse().ok()?,
        };
        let mut words = state.split(' ');
        let mut next = || words.next()?.parse::<u64>().ok();
        let in_bytes = |kilobytes: u64| kilobytes.checked_mul(1024);
        let mut left = ArenaState {
            rss_bytes: in_bytes(next()?)?,
            anon_huge_bytes: in_bytes(next()?)?,
            lazy_free_bytes: in_bytes(next()?)?,
            vmas: next()?,
            page_table_bytes: in_bytes(next()?)?,
            pmd_splits: next()?,
            pages: Vec::new(),
        };
        while let Some(letter) = words.next() {
            let state = LETTERS.iter().find(|(_, known)| letter.chars().eq([*known])).map(|(state, _)| *state)?;
            left.pages.push(PageRun(state, words.next()?.parse().ok()?));
        }
        Some(Self { did, left })
    }
}

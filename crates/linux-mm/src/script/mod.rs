//! Page-op scripts: operations on a small arena, in text form. The model predicts their results, and a real kernel can
//! execute them.
//!
//! A script has one operation per line, up to a line `end` or the end of the text. Offsets and lengths count 4 KiB
//! pages of the arena, which has [`ARENA_PAGES`] and usually starts on a 2 MiB boundary.
//! ```text
//! map OFF LEN PROT FLAGS      PROT: n, r, w (read and write), o (write only), x, rx, ox, wx (x: execute)
//!                             FLAGS: - or letters p (populate), N (noreserve), H (hugetlb),
//!                             S (stack)
//! unmap OFF LEN
//! adv NAME OFF LEN            HUGEPAGE NOHUGEPAGE DONTNEED DONTNEED_LOCKED FREE COLD POPULATE_READ POPULATE_WRITE
//!                             COLLAPSE WILLNEED NORMAL RANDOM SEQUENTIAL DONTFORK DOFORK WIPEONFORK KEEPONFORK
//!                             DONTDUMP DODUMP MERGEABLE UNMERGEABLE GUARD_INSTALL GUARD_REMOVE
//! name OFF LEN N|-            prctl(PR_SET_VMA_ANON_NAME): a name made from the number N, or none
//! prot OFF LEN PROT
//! remap OLD LEN NEW D         D=1: keep the source mapping
//! resize OFF LEN NEWLEN
//! mremap OLD LEN NEW NEWLEN   to a fixed address, or in place if OLD and NEW are equal
//! mapfile OFF LEN             a private, readable mapping of a file
//! f OFF LEN STRIDE            read every STRIDE-th page that is mapped to a file; the other touches skip such pages
//! r|w|z|k OFF LEN STRIDE      read / write 1 / write 0 / read(2) zeros into every STRIDE-th page
//! fork OFF LEN STRIDE         a child writes every STRIDE-th page and exits; ret: its faults
//! forkw OFF LEN STRIDE        the process writes while an idle child exists; ret: its faults
//! mlockall FLAGS              FLAGS: letters c (current), f (future), o (on fault)
//! munlockall
//! mlock OFF LEN -|o           o: mlock2, on fault
//! munlock OFF LEN
//! scan N                      the process sleeps until khugepaged has scanned it N times
//! forkscan N                  the same, while an idle child exists
//! t OPERATION                 a second thread of the process performs the operation
//! ```
//! Lines before the first operation may set modes of the machine: [`Header`].

mod execute;
mod header;
mod text;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::advise::Advice;
use super::lock::LockFlags;
use super::map::MapFlags;
use super::outcome::Errno;
use super::remap::RemapSource;
use super::vma::Protection;

pub use header::Header;

/// Pages in a script's arena.
pub const ARENA_PAGES: u64 = 4096;

/// How a script touches pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// `r`
    Read,
    /// `w`: writes a 1.
    WriteOne,
    /// `z`: writes a 0.
    WriteZero,
    /// `k`: a system call writes a 0.
    SystemCall,
}

/// One operation. Offsets and lengths are pages of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// mmap, fixed.
    Map(u64, u64, MapFlags),
    /// munmap.
    Unmap(u64, u64),
    /// madvise.
    Advise(Advice, u64, u64),
    /// mprotect.
    Protect(u64, u64, Protection),
    /// mremap to a fixed address: old start, length, new start.
    Remap(u64, u64, u64, RemapSource),
    /// mremap in place: start, old length, new length.
    Resize(u64, u64, u64),
    /// mremap with two lengths: old start, old length, new start, new length. In place if the starts are equal,
    /// otherwise to a fixed address.
    Mremap(u64, u64, u64, u64),
    /// Touch: start, length, stride. Touches the pages at multiples of the stride from the start.
    Touch(Touch, u64, u64, u64),
    /// fork: the named process writes a 1 to pages, selected as in [`Op::Touch`]. Then the child exits.
    Fork(ForkWriter, u64, u64, u64),
    /// mlockall.
    LockAll(LockFlags),
    /// munlockall.
    UnlockAll,
    /// mlock; with `true`, mlock2 on fault.
    Lock(u64, u64, bool),
    /// munlock.
    Unlock(u64, u64),
    /// prctl(PR_SET_VMA_ANON_NAME).
    Name(u64, u64, Option<u32>),
    /// mmap of a private file mapping, fixed, with `PROT_READ`.
    MapFile(u64, u64),
    /// Reads the pages of file mappings, selected as in [`Op::Touch`], and no others. Neither result nor cost is
    /// compared.
    TouchFile(u64, u64, u64),
    /// khugepaged scans all memory at least this many times, while the process sleeps.
    Scan(ScanOf, u64),
}

impl Op {
    /// Whether the operation locks memory, which may need privileges.
    pub fn locks(&self) -> bool {
        matches!(self, Op::LockAll(_) | Op::Lock(..))
    }

    /// Whether the operation waits for scans by khugepaged, whose pace only root can set.
    pub fn scans(&self) -> bool {
        matches!(self, Op::Scan(..))
    }

    /// Whether the operation names mappings, which not every kernel supports.
    pub fn names(&self) -> bool {
        matches!(self, Op::Name(..))
    }
}

/// Maximum number of scans in one operation.
pub const SCANS_MAX: u64 = 20;

/// What khugepaged finds when it scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOf {
    /// `scan`: the process alone.
    Process,
    /// `forkscan`: the process and an idle child, which shares its pages until it is ended after the scans.
    ProcessAndChild,
}

/// Which process writes after a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkWriter {
    /// `fork`
    Child,
    /// `forkw`: the parent, while the child idles.
    Parent,
}

/// The thread that performs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// The thread that created the arena.
    First,
    /// The second thread: `t`.
    Second,
}

/// An operation, and the thread that performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// The thread.
    pub thread: Thread,
}

impl From<Op> for Step {
    fn from(op: Op) -> Self {
        Self { op, thread: Thread::First }
    }
}

/// A script: header and operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Modes and arena position.
    pub header: Header,
    /// Operations, in order.
    pub steps: Vec<Step>,
}

/// The result and cost of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// For a system call, 0 or -1. For a touch, the number of pages that failed. For a fork, the faults of the writing
    /// process.
    pub ret: i64,
    /// The error, if `ret` is -1.
    pub errno: Option<Errno>,
    /// Faults charged.
    pub faults: u64,
    /// Exceptions taken.
    pub traps: u64,
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}: `{text}`")]
pub struct ScriptError {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong with it.
    pub reason: OpError,
}

/// Why a line is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// The first word is not an operation.
    #[error(
        "unknown operation; expected map, unmap, adv, prot, remap, resize, mremap, r, w, z, k, mlockall, munlockall, mlock, munlock, mapfile, f, name, fork, forkw, scan or forkscan, optionally after t"
    )]
    UnknownOperation,
    /// Unknown madvise advice.
    #[error("unknown advice; expected the name of a MADV_ constant, such as HUGEPAGE or DONTNEED")]
    UnknownAdvice,
    /// The word is not a value of this mode.
    #[error(
        "unknown mode; expected always, madvise or never (mthp also: inherit; defrag also: defer, defer+madvise), on or off for zero_page, allowed or never for overcommit"
    )]
    UnknownMode,
    /// The number is not a folio size.
    #[error("unknown size; expected a power of two from 16 to 2048 (kilobytes)")]
    UnknownSize,
    /// A mode line after the first operation.
    #[error("modes must come before the first operation")]
    LateHeader,
    /// The word is not a protection.
    #[error("unknown protection; expected n, r, w, o, x, rx, ox or wx")]
    UnknownProtection,
    /// Unknown mmap flags.
    #[error("unknown map flags; expected - or any of the letters pNHS")]
    UnknownFlags,
    /// Unknown mlockall flags.
    #[error("unknown mlockall flags; expected any of the letters cfo (current, future, on fault)")]
    UnknownLock,
    /// Too few or too many words, or a word that is not a number.
    #[error("wrong number of operands, or an operand that is not a number")]
    Operands,
    /// A fork by the second thread, whose child would not have the first thread, or a scan, which waits for no thread.
    #[error("fork, forkw, scan and forkscan must be performed by the first thread")]
    OnlyByFirst,
    /// A number of scans that is not possible.
    #[error("expected 1 to {SCANS_MAX} scans")]
    Scans,
    /// Pages outside the arena, a stride of 0, or a base above 511.
    #[error("pages outside the arena of 4096, a stride of 0, or a base above 511")]
    OutOfArena,
}

impl FromStr for Script {
    type Err = ScriptError;

    /// Parses a script up to `end` or the end of the text. Empty lines and lines starting with `#` are skipped.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line == "end" {
                break;
            }
            if !line.is_empty() && !line.starts_with('#') {
                script.take(line).map_err(|reason| ScriptError { line: at, text: line.to_owned(), reason })?;
            }
        }
        Ok(script)
    }
}

impl Script {
    /// A script of operations, without a header.
    pub fn of(ops: impl IntoIterator<Item = Op>) -> Self {
        Self { steps: ops.into_iter().map(Step::from).collect(), ..Self::default() }
    }

    fn take(&mut self, line: &str) -> Result<(), OpError> {
        match (self.header.take(line)?, self.steps.is_empty()) {
            (true, true) => {}
            (true, false) => return Err(OpError::LateHeader),
            (false, _) => self.steps.push(line.parse()?),
        }
        Ok(())
    }
}

impl fmt::Display for Script {
    /// Prints the text that [`Script::from_str`] parses, without `end`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header.fmt(out)?;
        self.steps.iter().try_for_each(|step| writeln!(out, "{step}"))
    }
}

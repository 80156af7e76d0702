//! Page-op scripts: a text form for operations on a small arena, so that the same operations can be predicted here
//! and executed on a real kernel.
//!
//! One operation per line, ended by `end`; numbers are 4 KiB pages in a 2 MiB-aligned arena of [`ARENA_PAGES`].
//! ```text
//! map OFF LEN n|r|w FLAGS     FLAGS: - or letters p (populate), N (noreserve), H (hugetlb)
//! unmap OFF LEN
//! adv NAME OFF LEN            HUGEPAGE NOHUGEPAGE DONTNEED FREE COLD POPULATE_READ POPULATE_WRITE COLLAPSE
//! prot OFF LEN n|r|w
//! remap OLD LEN NEW D         D=1: keep the source mapping
//! resize OFF LEN NEWLEN
//! r|w|z|k OFF LEN STRIDE      read / write 1 / write 0 / read(2) zeros into every STRIDE-th page
//! ```

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::advise::Advice;
use super::entry::{Access, Content};
use super::map::MapFlags;
use super::outcome::Errno;
use super::remap::RemapSource;
use super::vma::Protection;
use super::{Kernel, KernelConfig};

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
    /// mremap, fixed: old place, length, new place.
    Remap(u64, u64, u64, RemapSource),
    /// mremap in place: start, old length, new length.
    Resize(u64, u64, u64),
    /// Touch every page at a multiple of the last number, counted from the first.
    Touch(Touch, u64, u64, u64),
}

/// What one operation of a script returned and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// 0 or -1 of a system call; of a touch, how many pages failed.
    pub ret: i64,
    /// Set where `ret` is -1.
    pub errno: Option<Errno>,
    /// Faults charged.
    pub faults: u64,
    /// Traps taken.
    pub traps: u64,
}

/// A line that is no operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}: `{text}`")]
pub struct ScriptError {
    /// Counted from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What to mend.
    pub reason: OpError,
}

/// Why a line is no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpError {
    /// The first word names no operation.
    #[error("unknown operation; expected map, unmap, adv, prot, remap, resize, r, w, z or k")]
    UnknownOperation,
    /// madvise has no such advice here.
    #[error(
        "unknown advice; expected HUGEPAGE, NOHUGEPAGE, DONTNEED, FREE, COLD, POPULATE_READ, POPULATE_WRITE or COLLAPSE"
    )]
    UnknownAdvice,
    /// Not a protection.
    #[error("unknown protection; expected n, r or w")]
    UnknownProtection,
    /// Not a set of map flags.
    #[error("unknown map flags; expected - or letters of pNH")]
    UnknownFlags,
    /// Too few or too many words, or one that is no number.
    #[error("wrong number of operands, or an operand that is not a number")]
    Operands,
    /// Pages outside the arena, a stride of 0.
    #[error("pages outside the arena of 4096, or a stride of 0")]
    OutOfArena,
}

/// Reads a script up to `end` or the end of the text. Empty lines and lines from `#` on are skipped.
///
/// # Errors
/// The first line that is no operation.
pub fn parse(text: &str) -> Result<Vec<Op>, ScriptError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let content = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    content
        .take_while(|(_, line)| *line != "end")
        .map(|(line, text)| text.parse().map_err(|reason| ScriptError { line, text: text.to_owned(), reason }))
        .collect()
}

impl Kernel {
    /// A kernel whose address space holds a script's arena as scripts start: one NORESERVE, writable map from page
    /// `base` on. The arena must end inside the address space, or there is none.
    pub fn with_arena(config: KernelConfig, base: u64) -> Self {
        let mut kernel = Self::new(config);
        let flags = MapFlags { noreserve: true, ..MapFlags::READ_WRITE };
        let _ = kernel.map(base..base + ARENA_PAGES, flags);
        kernel
    }

    /// Executes one operation on the arena that starts at page `base`.
    pub fn execute(&mut self, op: &Op, base: u64) -> OpResult {
        let before = self.counters;
        let range = |start: u64, length: u64| base + start..base + start + length;
        let result = match *op {
            Op::Map(start, length, flags) => self.map(range(start, length), flags).result,
            Op::Unmap(start, length) => self.unmap(range(start, length)),
            Op::Advise(advice, start, length) => self.advise(range(start, length), advice).result,
            Op::Protect(start, length, protection) => self.protect(range(start, length), protection),
            Op::Remap(old, length, new, source) => self.remap(base + old, length, base + new, source),
            Op::Resize(start, old, new) => self.resize(base + start, old, new),
            Op::Touch(touch, start, length, stride) => {
                let pages = range(start, length).step_by(usize::try_from(stride).unwrap_or(usize::MAX));
                let failed = pages.filter(|&page| self.touch(page, touch.access()).is_err()).count();
                return self.op_result(before, failed as i64, None);
            }
        };
        self.op_result(before, if result.is_ok() { 0 } else { -1 }, result.err())
    }

    fn op_result(&self, before: super::Counters, ret: i64, errno: Option<Errno>) -> OpResult {
        let now = self.counters;
        OpResult { ret, errno, faults: now.faults - before.faults, traps: now.traps - before.traps }
    }
}

impl Touch {
    fn access(self) -> Access {
        match self {
            Self::Read => Access::Read,
            Self::WriteOne => Access::Write(Content::NonZero),
            Self::WriteZero | Self::SystemCall => Access::Write(Content::Zero),
        }
    }
}

const ADVICES: [(&str, Advice); 8] = [
    ("HUGEPAGE", Advice::HugePage),
    ("NOHUGEPAGE", Advice::NoHugePage),
    ("DONTNEED", Advice::DontNeed),
    ("FREE", Advice::Free),
    ("COLD", Advice::Cold),
    ("POPULATE_READ", Advice::PopulateRead),
    ("POPULATE_WRITE", Advice::PopulateWrite),
    ("COLLAPSE", Advice::Collapse),
];

const PROTECTIONS: [(&str, Protection); 3] =
    [("n", Protection::None), ("r", Protection::Read), ("w", Protection::ReadWrite)];

const TOUCHES: [(&str, Touch); 4] =
    [("r", Touch::Read), ("w", Touch::WriteOne), ("z", Touch::WriteZero), ("k", Touch::SystemCall)];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(entry, _)| *entry == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    table.iter().find(|(_, entry)| *entry == value).map_or("?", |(name, _)| name)
}

fn numbers<const N: usize>(words: &[&str]) -> Result<[u64; N], OpError> {
    let values: Result<Vec<u64>, _> = words.iter().map(|word| word.parse()).collect();
    values.ok().and_then(|values| values.try_into().ok()).ok_or(OpError::Operands)
}

fn protection(word: &str) -> Result<Protection, OpError> {
    named(&PROTECTIONS, word).ok_or(OpError::UnknownProtection)
}

fn map_flags(protection: Protection, word: &str) -> Result<MapFlags, OpError> {
    let mut flags = MapFlags { protection, ..MapFlags::READ_WRITE };
    for letter in word.chars().filter(|_| word != "-") {
        match letter {
            'p' => flags.populate = true,
            'N' => flags.noreserve = true,
            'H' => flags.hugetlb = true,
            _ => return Err(OpError::UnknownFlags),
        }
    }
    Ok(flags)
}

impl Op {
    fn stays_in_arena(&self) -> bool {
        let inside = |start: u64, length: u64| start.saturating_add(length) <= ARENA_PAGES;
        match *self {
            Self::Map(start, length, _)
            | Self::Unmap(start, length)
            | Self::Advise(_, start, length)
            | Self::Protect(start, length, _) => inside(start, length),
            Self::Remap(old, length, new, _) => inside(old, length) && inside(new, length),
            Self::Resize(start, old, new) => inside(start, old) && inside(start, new),
            Self::Touch(_, start, length, stride) => inside(start, length) && stride > 0,
        }
    }
}

impl FromStr for Op {
    type Err = OpError;

    fn from_str(line: &str) -> Result<Self, OpError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let op = match words[..] {
            ["map", start, length, prot, flags] => {
                let [start, length] = numbers(&[start, length])?;
                Self::Map(start, length, map_flags(protection(prot)?, flags)?)
            }
            ["unmap", ref rest @ ..] => numbers(rest).map(|[start, length]| Self::Unmap(start, length))?,
            ["adv", name, ref rest @ ..] => {
                let advice = named(&ADVICES, name).ok_or(OpError::UnknownAdvice)?;
                numbers(rest).map(|[start, length]| Self::Advise(advice, start, length))?
            }
            ["prot", start, length, prot] => {
                let [start, length] = numbers(&[start, length])?;
                Self::Protect(start, length, protection(prot)?)
            }
            ["remap", old, length, new, kept @ ("0" | "1")] => {
                let [old, length, new] = numbers(&[old, length, new])?;
                Self::Remap(old, length, new, if kept == "1" { RemapSource::Kept } else { RemapSource::Unmapped })
            }
            ["resize", ref rest @ ..] => numbers(rest).map(|[start, old, new]| Self::Resize(start, old, new))?,
            [name @ ("r" | "w" | "z" | "k"), ref rest @ ..] => {
                let touch = named(&TOUCHES, name).ok_or(OpError::UnknownOperation)?;
                numbers(rest).map(|[start, length, stride]| Self::Touch(touch, start, length, stride))?
            }
            ["map" | "prot" | "remap", ..] => return Err(OpError::Operands),
            _ => return Err(OpError::UnknownOperation),
        };
        if op.stays_in_arena() { Ok(op) } else { Err(OpError::OutOfArena) }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Map(start, length, flags) => {
                write!(out, "map {start} {length} {} ", name_of(&PROTECTIONS, flags.protection))?;
                let letters = [(flags.populate, 'p'), (flags.noreserve, 'N'), (flags.hugetlb, 'H')];
                let set: String = letters.iter().filter(|(on, _)| *on).map(|(_, letter)| *letter).collect();
                out.write_str(if set.is_empty() { "-" } else { &set })
            }
            Self::Unmap(start, length) => write!(out, "unmap {start} {length}"),
            Self::Advise(advice, start, length) => {
                write!(out, "adv {} {start} {length}", name_of(&ADVICES, advice))
            }
            Self::Protect(start, length, protection) => {
                write!(out, "prot {start} {length} {}", name_of(&PROTECTIONS, protection))
            }
            Self::Remap(old, length, new, source) => {
                write!(out, "remap {old} {length} {new} {}", u8::from(source == RemapSource::Kept))
            }
            Self::Resize(start, old, new) => write!(out, "resize {start} {old} {new}"),
            Self::Touch(touch, start, length, stride) => {
                write!(out, "{} {start} {length} {stride}", name_of(&TOUCHES, touch))
            }
        }
    }
}

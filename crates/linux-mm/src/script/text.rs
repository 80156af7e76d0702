//! Parsing and printing of operations.

use std::fmt;
use std::str::FromStr;

use super::{ARENA_PAGES, ForkWriter, Op, OpError, SCANS_MAX, ScanOf, Step, Thread, Touch};
use crate::{Advice, LockFlags, MapFlags, Protection, RemapSource};

const ADVICES: [(&str, Advice); 23] = [
    ("HUGEPAGE", Advice::HugePage),
    ("NOHUGEPAGE", Advice::NoHugePage),
    ("DONTNEED", Advice::DontNeed),
    ("FREE", Advice::Free),
    ("COLD", Advice::Cold),
    ("POPULATE_READ", Advice::PopulateRead),
    ("POPULATE_WRITE", Advice::PopulateWrite),
    ("COLLAPSE", Advice::Collapse),
    ("DONTNEED_LOCKED", Advice::DontNeedLocked),
    ("WILLNEED", Advice::WillNeed),
    ("NORMAL", Advice::Normal),
    ("RANDOM", Advice::Random),
    ("SEQUENTIAL", Advice::Sequential),
    ("DONTFORK", Advice::DontFork),
    ("DOFORK", Advice::DoFork),
    ("WIPEONFORK", Advice::WipeOnFork),
    ("KEEPONFORK", Advice::KeepOnFork),
    ("DONTDUMP", Advice::DontDump),
    ("DODUMP", Advice::DoDump),
    ("MERGEABLE", Advice::Mergeable),
    ("UNMERGEABLE", Advice::Unmergeable),
    ("GUARD_INSTALL", Advice::GuardInstall),
    ("GUARD_REMOVE", Advice::GuardRemove),
];

/// `w` is the most common protection, `PROT_READ | PROT_WRITE`; `o` is `PROT_WRITE` alone.
const PROTECTIONS: [(&str, Protection); 8] = [
    ("n", Protection::None),
    ("r", Protection::Read),
    ("w", Protection::ReadWrite),
    ("o", Protection::Write),
    ("x", Protection::Execute),
    ("rx", Protection::ReadExecute),
    ("ox", Protection::WriteExecute),
    ("wx", Protection::ReadWriteExecute),
];

const TOUCHES: [(&str, Touch); 4] =
    [("r", Touch::Read), ("w", Touch::WriteOne), ("z", Touch::WriteZero), ("k", Touch::SystemCall)];

const FORKS: [(&str, ForkWriter); 2] = [("fork", ForkWriter::Child), ("forkw", ForkWriter::Parent)];

const SCANS: [(&str, ScanOf); 2] = [("scan", ScanOf::Process), ("forkscan", ScanOf::ProcessAndChild)];

pub(super) fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(entry, _)| *entry == name).map(|(_, value)| *value)
}

pub(super) fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
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
            'S' => flags.stack = true,
            _ => return Err(OpError::UnknownFlags),
        }
    }
    Ok(flags)
}

fn lock_flags(word: &str) -> Result<LockFlags, OpError> {
    let mut flags = LockFlags::default();
    for letter in word.chars() {
        match letter {
            'c' => flags.current = true,
            'f' => flags.future = true,
            'o' => flags.on_fault = true,
            _ => return Err(OpError::UnknownLock),
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
            | Self::Protect(start, length, _)
            | Self::Lock(start, length, _)
            | Self::MapFile(start, length)
            | Self::Name(start, length, _)
            | Self::Unlock(start, length) => inside(start, length),
            Self::LockAll(_) | Self::UnlockAll | Self::Scan(..) => true,
            Self::Remap(old, length, new, _) => inside(old, length) && inside(new, length),
            Self::Resize(start, old, new) => inside(start, old) && inside(start, new),
            Self::Mremap(old, length, new, new_length) => inside(old, length) && inside(new, new_length),
            Self::Touch(_, start, length, stride)
            | Self::Fork(_, start, length, stride)
            | Self::TouchFile(start, length, stride) => inside(start, length) && stride > 0,
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
            ["mremap", ref rest @ ..] => {
                numbers(rest).map(|[old, length, new, new_length]| Self::Mremap(old, length, new, new_length))?
            }
            [name @ ("r" | "w" | "z" | "k"), ref rest @ ..] => {
                let touch = named(&TOUCHES, name).ok_or(OpError::UnknownOperation)?;
                numbers(rest).map(|[start, length, stride]| Self::Touch(touch, start, length, stride))?
            }
            [name @ ("fork" | "forkw"), ref rest @ ..] => {
                let writer = named(&FORKS, name).ok_or(OpError::UnknownOperation)?;
                numbers(rest).map(|[start, length, stride]| Self::Fork(writer, start, length, stride))?
            }
            [name @ ("scan" | "forkscan"), ref rest @ ..] => {
                let of = named(&SCANS, name).ok_or(OpError::UnknownOperation)?;
                let [scans] = numbers(rest)?;
                if !(1..=SCANS_MAX).contains(&scans) {
                    return Err(OpError::Scans);
                }
                Self::Scan(of, scans)
            }
            ["name", start, length, name] => {
                let [start, length] = numbers(&[start, length])?;
                let name = if name == "-" { None } else { Some(name.parse().map_err(|_| OpError::Operands)?) };
                Self::Name(start, length, name)
            }
            ["mapfile", ref rest @ ..] => numbers(rest).map(|[start, length]| Self::MapFile(start, length))?,
            ["f", ref rest @ ..] => {
                numbers(rest).map(|[start, length, stride]| Self::TouchFile(start, length, stride))?
            }
            ["mlockall", flags] => Self::LockAll(lock_flags(flags)?),
            ["munlockall"] => Self::UnlockAll,
            ["mlock", start, length, how @ ("-" | "o")] => {
                let [start, length] = numbers(&[start, length])?;
                Self::Lock(start, length, how == "o")
            }
            ["munlock", ref rest @ ..] => numbers(rest).map(|[start, length]| Self::Unlock(start, length))?,
            ["map" | "prot" | "remap" | "mlock" | "mlockall" | "munlockall" | "name", ..] => {
                return Err(OpError::Operands);
            }
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
                let letters = [(flags.populate, 'p'), (flags.noreserve, 'N'), (flags.hugetlb, 'H'), (flags.stack, 'S')];
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
            Self::Mremap(old, length, new, new_length) => write!(out, "mremap {old} {length} {new} {new_length}"),
            Self::LockAll(flags) => {
                let letters = [(flags.current, 'c'), (flags.future, 'f'), (flags.on_fault, 'o')];
                out.write_str("mlockall ")?;
                letters.iter().filter(|(on, _)| *on).try_for_each(|(_, letter)| write!(out, "{letter}"))
            }
            Self::UnlockAll => out.write_str("munlockall"),
            Self::Lock(start, length, on_fault) => {
                write!(out, "mlock {start} {length} {}", if on_fault { "o" } else { "-" })
            }
            Self::Unlock(start, length) => write!(out, "munlock {start} {length}"),
            Self::Name(start, length, None) => write!(out, "name {start} {length} -"),
            Self::Name(start, length, Some(name)) => write!(out, "name {start} {length} {name}"),
            Self::MapFile(start, length) => write!(out, "mapfile {start} {length}"),
            Self::TouchFile(start, length, stride) => write!(out, "f {start} {length} {stride}"),
            Self::Touch(touch, start, length, stride) => {
                write!(out, "{} {start} {length} {stride}", name_of(&TOUCHES, touch))
            }
            Self::Scan(of, scans) => write!(out, "{} {scans}", name_of(&SCANS, of)),
            Self::Fork(writer, start, length, stride) => {
                write!(out, "{} {start} {length} {stride}", name_of(&FORKS, writer))
            }
        }
    }
}

impl FromStr for Step {
    type Err = OpError;

    fn from_str(line: &str) -> Result<Self, OpError> {
        match line.split_once(char::is_whitespace) {
            Some(("t", op)) => match op.parse()? {
                Op::Fork(..) | Op::Scan(..) => Err(OpError::OnlyByFirst),
                op => Ok(Self { op, thread: Thread::Second }),
            },
            _ => Ok(Self { op: line.parse()?, thread: Thread::First }),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.thread == Thread::Second {
            out.write_str("t ")?;
        }
        self.op.fmt(out)
    }
}

//! glibc's mtrace(3). Lines are `[@ WHERE ]+ ADDRESS SIZE`, `- ADDRESS`, `< OLD` then `> NEW SIZE` (a realloc), and
//! `! OLD SIZE` (a failed realloc).
//!
//! WHERE contains a file name, which may have spaces, so lines are parsed from their end.

use super::calls::{Function, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::{Format, no_times};
use crate::event::AllocCall;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "mtrace",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| line == "= Start" || parse(line).is_ok()),
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "threads",
        "times",
        "alignment",
        "which blocks were requested zeroed",
        "the requested size of pvalloc, which rounds it up",
    ],
    convert,
};

enum Line {
    /// `= Start`, `= End`.
    Border,
    Alloc {
        address: u64,
        size: u64,
    },
    Free(u64),
    From(u64),
    To {
        new: u64,
        size: u64,
    },
    Failed {
        old: u64,
        size: u64,
    },
}

fn parse(line: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "expected `+ ADDRESS SIZE`, `- ADDRESS`, `< OLD`, `> NEW SIZE` or `! OLD SIZE`";
    if line == "= Start" || line == "= End" {
        return Ok(Line::Border);
    }
    let mut words = line.rsplit(' ');
    let last = words.next().and_then(number).ok_or(EXPECTED)?;
    let before = words.next().ok_or(EXPECTED)?;
    let known = |word: &str| word.starts_with("0x") || word == "(nil)" || word == "0";
    match before {
        "-" => return Ok(Line::Free(last)),
        "<" => return Ok(Line::From(last)),
        _ => (),
    }
    let address = Some(before).filter(|word| known(word)).and_then(number).ok_or(EXPECTED)?;
    match words.next() {
        Some("+") => Ok(Line::Alloc { address, size: last }),
        Some(">") => Ok(Line::To { new: address, size: last }),
        Some("!") => Ok(Line::Failed { old: address, size: last }),
        _ => Err(EXPECTED),
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    // The two lines of a realloc are written under one lock, so they are adjacent.
    let mut resized = None;
    while let Some(text) = input.line(Lines::Strict)? {
        let line = parse(text)?;
        if !matches!(line, Line::To { .. }) && resized.take().is_some() {
            return Err("a `<` line is not followed by a `>` line".into());
        }
        let op = match line {
            Line::Border => continue,
            Line::From(old) => {
                resized = Some(old);
                continue;
            }
            Line::Alloc { address, size } => Function::Alloc(AllocCall::Malloc).op([size, 0, 0], address)?,
            Line::Free(address) => RawOp::Free { address },
            Line::To { new, size } => {
                let old = resized.take().ok_or("a `>` line does not follow a `<` line")?;
                Function::Realloc.op([old, size, 0], new)?
            }
            Line::Failed { old, size } => Function::Realloc.op([old, size, 0], 0)?,
        };
        sink.push(0, op)?;
    }
    sink.quality.unfinished_calls += resized.is_some() as u64;
    Ok(())
}

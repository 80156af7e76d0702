//! Traces of university allocator assignments: lines `a ID SIZE`, `r ID SIZE` and `f ID` (`f -1` frees NULL). There is
//! one call per line, with ids instead of addresses.

use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::{Format, no_times};
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "script",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| parse(line).is_ok()),
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &["threads", "times", "alignment", "which blocks were requested zeroed"],
    convert,
};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Alloc {
        id: u64,
        size: u64,
    },
    Realloc {
        id: u64,
        size: u64,
    },
    Free {
        id: u64,
    },
    /// `f -1`, which occurs in traces of CS:APP's malloc lab.
    FreeNull,
}

const EXPECTED: &str = "expected `a ID SIZE`, `r ID SIZE` or `f ID` with decimal numbers";

pub(super) fn parse(line: &str) -> Result<Call, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let op = words.next();
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(EXPECTED);
    let call = match op {
        Some("a") => Call::Alloc { id: number()?, size: number()? },
        Some("r") => Call::Realloc { id: number()?, size: number()? },
        Some("f") => match words.next() {
            Some("-1") => Call::FreeNull,
            word => Call::Free { id: word.and_then(|word| word.parse().ok()).ok_or(EXPECTED)? },
        },
        _ => return Err(EXPECTED),
    };
    if words.next().is_some() { Err(EXPECTED) } else { Ok(call) }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    while let Some(line) = input.line(Lines::Strict)? {
        push(parse(line)?, sink)?;
    }
    Ok(())
}

/// Pushes a call as that of the only thread. Ids serve as addresses.
pub(super) fn push(call: Call, sink: &mut Sink) -> Result<(), Failure> {
    let address = |id: u64| id.checked_add(1).ok_or("the id is above 2^64 - 2");
    let op = match call {
        Call::Alloc { id, size } => {
            let address = address(id)?;
            if sink.is_live(address) {
                let why = format!("`a {id}`, but id {id} is still live");
                return Err(Failure::new(why, "free it first or give the block another id"));
            }
            RawOp::Alloc { address, size, align_log2: 0, call: AllocCall::Malloc, initial_touch: InitialTouch::None }
        }
        Call::Realloc { id, size } => {
            let old = address(id)?;
            RawOp::Realloc {
                old,
                new: if size == 0 { 0 } else { old },
                size,
                call: ReallocCall::Realloc,
                initial_touch: InitialTouch::None,
            }
        }
        Call::Free { id } => RawOp::Free { address: address(id)? },
        Call::FreeNull => RawOp::Free { address: 0 },
    };
    sink.push(0, op)
}

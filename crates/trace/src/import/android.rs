//! Android's `record_allocs` text: `TID: op POINTER arguments [START_NS END_NS]`.
//!
//! A lock orders the lines of all threads. A realloc is logged after it has returned. So another thread may seem to
//! reuse the old address before the realloc; the merge of [`crate::resolve`] corrects the order.

use super::Format;
use super::calls::align_log2;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "android",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| parse(line).is_ok()),
    clock,
    window: WaitLimits::DEFAULT,
    unknown: &["which of posix_memalign, aligned_alloc, valloc and pvalloc a memalign was"],
    convert,
};

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    tid: u32,
    op: RawOp,
    /// When the call began and returned, in nanoseconds.
    times_ns: Option<(u64, u64)>,
}

pub(super) fn parse(line: &str) -> Result<Line, &'static str> {
    let (tid, rest) = line.split_once(':').ok_or("expected `TID: op POINTER ...`")?;
    let tid = tid.parse().map_err(|_| "the thread id is not a decimal number below 2^32")?;
    let mut words = Words(rest.split_ascii_whitespace());
    let name = words.0.next().ok_or("the operation is missing")?;
    let pointer = words.pointer()?;
    let op = match name {
        "malloc" => alloc(pointer, words.number()?, 0, AllocCall::Malloc),
        "calloc" => {
            let size = words.number()?.saturating_mul(words.number()?);
            alloc(pointer, size, 0, AllocCall::Calloc)
        }
        "memalign" => {
            let align_log2 = align_log2(words.number()?)?;
            alloc(pointer, words.number()?, align_log2, AllocCall::Memalign)
        }
        "realloc" => {
            let (old, size) = (words.pointer()?, words.number()?);
            RawOp::Realloc { old, new: pointer, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None }
        }
        "free" => RawOp::Free { address: pointer },
        "thread_done" => RawOp::ThreadExit,
        _ => return Err("the operation is not malloc, calloc, realloc, memalign, free or thread_done"),
    };
    let times_ns = words.times(matches!(op, RawOp::ThreadExit))?;
    Ok(Line { tid, op, times_ns })
}

fn alloc(address: u64, size: u64, align_log2: u8, call: AllocCall) -> RawOp {
    RawOp::Alloc { address, size, align_log2, call, initial_touch: InitialTouch::None }
}

struct Words<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn number(&mut self) -> Result<u64, &'static str> {
        let word = self.0.next().ok_or("a number is missing")?;
        word.parse().map_err(|_| "expected a decimal number below 2^64")
    }

    fn pointer(&mut self) -> Result<u64, &'static str> {
        let word = self.0.next().ok_or("a pointer is missing")?;
        let digits = word.strip_prefix("0x").ok_or("a pointer does not begin with 0x")?;
        u64::from_str_radix(digits, 16).map_err(|_| "a pointer is not a hexadecimal number below 2^64")
    }

    /// The times after the arguments, if present. Newer versions write one more number after them, which is ignored.
    fn times(&mut self, thread_done: bool) -> Result<Option<(u64, u64)>, &'static str> {
        let mut numbers = [0; 3];
        let mut count = 0;
        for word in self.0.by_ref() {
            *numbers.get_mut(count).ok_or("there are too many numbers")? =
                word.parse().map_err(|_| "expected a decimal number below 2^64")?;
            count += 1;
        }
        Ok(match count {
            0 => None,
            1 if thread_done => Some((numbers[0], numbers[0])),
            1 => None, // the number of present bytes, without times
            _ => Some((numbers[0], numbers[1])),
        })
    }
}

impl Line {
    /// When the call took effect. For a free or realloc, this is the begin of the call, so that no reuse of the address
    /// comes before it. For other calls, it is the return.
    fn stamp_ns(&self) -> Option<u64> {
        let (start_ns, end_ns) = self.times_ns?;
        Some(match self.op {
            RawOp::Free { .. } | RawOp::Realloc { .. } => start_ns,
            _ => end_ns,
        })
    }
}

/// The times are measured if the first line has times. In that case all lines must have them.
fn clock(head: &Head) -> Clock {
    let timed = head.lines().next().and_then(|line| parse(line).ok()).is_some_and(|line| line.times_ns.is_some());
    if timed { Clock::Measured } else { Clock::PerEvent }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    while let Some(text) = input.line(Lines::Strict)? {
        let line = parse(text)?;
        let tid = u64::from(line.tid);
        match (sink.clock(), line.stamp_ns()) {
            (Clock::PerEvent, None) => sink.push(tid, line.op)?,
            (Clock::Measured, Some(stamp_ns)) => sink.push_at(stamp_ns, tid, line.op)?,
            _ => {
                let why = "some lines have times and some have none";
                return Err(Failure::new(why, "remove the times from all lines"));
            }
        }
    }
    Ok(())
}

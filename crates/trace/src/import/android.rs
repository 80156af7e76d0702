//! Android's `record_allocs` text: `TID: op POINTER arguments [START_NS END_NS]`.
//!
//! Lines stand in the order in which threads entered one lock. A realloc is logged after it returned, so another
//! thread may seem to reuse its old address before; the merge of [`crate::resolve`] puts that right.

use super::lines::Lines;
use super::reorder::Reorder;
use crate::error::TraceError;
use crate::event::{AllocCall, Op, ReallocCall};
use crate::header::{Clock, Quality};
use crate::hkt::TraceWriter;
use crate::resolve::{RawEvent, RawOp, Resolver, Window};
use std::collections::HashMap;

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
    let tid = tid.parse().map_err(|_| "the thread id is no decimal number below 2^32")?;
    let mut words = Words(rest.split_ascii_whitespace());
    let name = words.0.next().ok_or("the operation is missing")?;
    let pointer = words.pointer()?;
    let op = match name {
        "malloc" => alloc(pointer, words.number()?, 0, AllocCall::Malloc)?,
        "calloc" => {
            let size = words.number()?.saturating_mul(words.number()?);
            alloc(pointer, size, 0, AllocCall::Calloc)?
        }
        "memalign" => {
            let align = words.number()?;
            // Android rounds an alignment up to a power of two.
            let align_log2 =
                align.max(1).checked_next_power_of_two().ok_or("the alignment is above 2^63")?.ilog2() as u8;
            alloc(pointer, words.number()?, align_log2, AllocCall::Memalign)?
        }
        "realloc" => {
            let (old, size) = (words.pointer()?, words.number()?);
            in_address_space(pointer, size)?;
            RawOp::Realloc { old, new: pointer, size, call: ReallocCall::Realloc }
        }
        "free" => RawOp::Free { address: pointer },
        "thread_done" => RawOp::ThreadExit,
        _ => return Err("the operation is none of malloc, calloc, realloc, memalign, free, thread_done"),
    };
    let times_ns = words.times(matches!(op, RawOp::ThreadExit))?;
    Ok(Line { tid, op, times_ns })
}

fn alloc(address: u64, size: u64, align_log2: u8, call: AllocCall) -> Result<RawOp, &'static str> {
    in_address_space(address, size)?;
    Ok(RawOp::Alloc { address, size, align_log2, call })
}

/// A call that returned a block cannot have asked for more than there is.
fn in_address_space(address: u64, size: u64) -> Result<(), &'static str> {
    if address != 0 && size >= Op::BLOCK_BYTES_END { Err("the block is larger than the address space") } else { Ok(()) }
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
        u64::from_str_radix(digits, 16).map_err(|_| "a pointer is no hexadecimal number below 2^64")
    }

    /// What follows the arguments: nothing, or two times, or (newer writers) one more number behind either.
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
            1 => None, // the bytes present, which say nothing about time
            _ => Some((numbers[0], numbers[1])),
        })
    }
}

impl Line {
    /// When it took effect: a free and a realloc as they began, so that no reuse of the address comes before; the
    /// others as they returned.
    fn stamp_ns(&self) -> Option<u64> {
        let (start_ns, end_ns) = self.times_ns?;
        Some(match self.op {
            RawOp::Free { .. } | RawOp::Realloc { .. } => start_ns,
            _ => end_ns,
        })
    }
}

/// Whether the first line has times, and so all.
pub(super) fn clock(lines: &mut Lines<'_>) -> Result<Clock, TraceError> {
    let timed = lines.peek()?.and_then(|line| parse(line).ok()).is_some_and(|line| line.times_ns.is_some());
    Ok(if timed { Clock::Measured } else { Clock::PerEvent })
}

/// Converts all lines. Without times, each line takes [`Clock::EVENT_NS`].
pub(super) fn convert(lines: &mut Lines<'_>, clock: Clock, writer: &mut TraceWriter) -> Result<Quality, TraceError> {
    let mut merge = Merge { resolver: Resolver::new(Window::default()), base_ns: None, ready: Vec::new() };
    let mut threads = Threads::default();
    let mut reorder = Reorder::default();
    let mut line_ns = 0;
    while let Some(text) = lines.next()? {
        let line = parse(text).map_err(|why| lines.error(why, "mend the line, or name the format with --from"))?;
        let time_ns = match (clock, line.stamp_ns()) {
            (Clock::PerEvent, None) => line_ns,
            (Clock::Measured, Some(stamp_ns)) => stamp_ns,
            _ => return Err(lines.error("some lines have times and some have none", "remove the times from all lines")),
        };
        line_ns += Clock::EVENT_NS;
        let raw = RawEvent::new(time_ns, threads.number(&line), line.op);
        if let Some(raw) = if clock == Clock::Measured { reorder.push(raw) } else { Some(raw) } {
            merge.push(raw, writer)?;
        }
    }
    while let Some(raw) = reorder.pop() {
        merge.push(raw, writer)?;
    }
    merge.finish(writer)
}

/// The resolver, with its events passed on to the writer.
struct Merge {
    resolver: Resolver,
    /// Time stamp of the first event: the trace begins at 0.
    base_ns: Option<u64>,
    ready: Vec<crate::event::Event>,
}

impl Merge {
    fn push(&mut self, raw: RawEvent, writer: &mut TraceWriter) -> Result<(), TraceError> {
        let base_ns = *self.base_ns.get_or_insert(raw.time_ns);
        let raw = RawEvent { time_ns: raw.time_ns.saturating_sub(base_ns), ..raw };
        self.resolver.push(raw, &mut |event| self.ready.push(event))?;
        self.ready.drain(..).try_for_each(|event| writer.push(&event))
    }

    fn finish(mut self, writer: &mut TraceWriter) -> Result<Quality, TraceError> {
        let quality = self.resolver.finish(&mut |event| self.ready.push(event))?;
        self.ready.drain(..).try_for_each(|event| writer.push(&event))?;
        Ok(quality)
    }
}

/// A number of its own for each thread, as the kernel gives the tid of a dead one to another.
#[derive(Default)]
struct Threads {
    live: HashMap<u32, u32>,
    seen: u32,
}

impl Threads {
    fn number(&mut self, line: &Line) -> u32 {
        let number = *self.live.entry(line.tid).or_insert_with(|| {
            self.seen = self.seen.wrapping_add(1);
            self.seen
        });
        if line.op == RawOp::ThreadExit {
            self.live.remove(&line.tid);
        }
        number
    }
}

//! heaptrack's files; all numbers are hexadecimal. The raw file (`heaptrack -r`) has lines `+ SIZE STACK POINTER` and
//! `- POINTER`. The interpreted file, which heaptrack writes by default, has lines `+ KIND` and `- KIND` ([`kinds`]).
//! Times have steps of 10 ms.
//!
//! After a realloc has returned, heaptrack writes it as a `-` line and a `+` line under one lock.

mod kinds;

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};
use kinds::Kinds;

pub(super) const FORMAT: Format = Format {
    name: "heaptrack",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| version(line).is_some()),
    clock: |_| Clock::Measured,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "threads",
        "times, except in steps of 10 ms",
        "alignment",
        "which blocks were requested zeroed",
        "realloc: it is recorded as a free and a new block",
        "memalign, pvalloc and reallocarray, which heaptrack does not see: their frees are unknown",
        "without -r: which of several blocks of one size and call stack is freed",
    ],
    convert,
};

/// The newest known format.
const FORMAT_MAX: u64 = 3;
const REMEDY: &str = "use another copy; heaptrack writes no such line";

/// Format of the file, if this is its first line: `v VERSION FORMAT`.
fn version(line: &str) -> Option<u64> {
    let mut words = line.strip_prefix("v ")?.split(' ');
    let heaptrack = hex(words.next()).ok()?;
    let format = words.next().map_or(Ok(0), |word| hex(Some(word))).ok()?;
    (heaptrack >= 0x1_0000 && words.next().is_none()).then_some(format)
}

fn hex(word: Option<&str>) -> Result<u64, Failure> {
    let word = word.ok_or_else(|| Failure::new("a number is missing", REMEDY))?;
    u64::from_str_radix(word, 16).map_err(|_| Failure::new("a number is not hexadecimal, or too large", REMEDY))
}

/// A line about memory.
enum Line {
    Call(RawOp),
    /// In an interpreted file: defines the next kind, with this size.
    Kind(u64),
    /// An allocation of a block of this kind.
    Begins(u64),
    /// A free. The number after `-` is an address or a kind.
    Ends(u64),
    /// Milliseconds since the start.
    Time(u64),
    Attached,
    /// A line that only interpreted files have.
    Interpreted,
    Other,
}

fn parse(line: &str) -> Result<Line, Failure> {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let parsed = match name {
        "+" => {
            let first = hex(words.next())?;
            let Some(stack) = words.next() else { return Ok(Line::Begins(first)) };
            let (size, _, address) = (first, hex(Some(stack))?, hex(words.next())?);
            Line::Call(RawOp::Alloc {
                address,
                size,
                align_log2: 0,
                call: AllocCall::Malloc,
                initial_touch: InitialTouch::None,
            })
        }
        "-" => Line::Ends(hex(words.next())?),
        "a" => {
            let (size, _stack) = (hex(words.next())?, hex(words.next())?);
            Line::Kind(size)
        }
        "c" => Line::Time(hex(words.next())?),
        "A" => Line::Attached,
        "v" | "x" | "X" | "I" | "m" | "t" | "R" | "S" => return Ok(Line::Other),
        "i" | "s" => return Ok(Line::Interpreted),
        name if name.starts_with('#') => return Ok(Line::Other),
        _ => return Err(Failure::new("not a line of heaptrack", REMEDY)),
    };
    if words.next().is_some() { Err(Failure::new("the line has too many words", REMEDY)) } else { Ok(parsed) }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let Some(format) = input.line(Lines::Mixed)?.and_then(version) else {
        return Err(Failure::new("a heaptrack file begins with `v VERSION FORMAT`", "use another copy"));
    };
    if format > FORMAT_MAX {
        let why = format!("file format {format} is newer than {FORMAT_MAX}, the newest known");
        return Err(Failure::new(why, "use a newer hksim"));
    }
    let (mut time_ns, mut attached, mut blocks) = (0u64, false, Blocks::Undecided);
    while let Some(line) = input.line(Lines::Mixed)? {
        let done = parse(line).and_then(|line| match line {
            Line::Time(time_ms) => {
                time_ns = time_ns.max(time_ms.saturating_mul(1_000_000));
                Ok(None)
            }
            Line::Attached => {
                attached = true;
                Ok(None)
            }
            line => blocks.op(line),
        });
        match done {
            Ok(Some(op)) => sink.push_in_order(time_ns, 0, op)?,
            Ok(None) => (),
            // If the program was killed, the last line can be incomplete.
            Err(_) if input.is_at_end()? => sink.quality.unfinished_calls += 1,
            Err(why) => return Err(why),
        }
    }
    if let Blocks::Interpreted(kinds) = blocks {
        sink.quality.addresses_guessed += kinds.guessed;
    }
    if attached {
        sink.note("heaptrack was attached to a running program: earlier blocks are unknown".to_string());
    }
    Ok(())
}

/// How a file identifies blocks. The first line about a block decides it.
enum Blocks {
    Undecided,
    ByAddress,
    Interpreted(Kinds),
}

impl Blocks {
    /// The call of a line, if it is one.
    fn op(&mut self, line: Line) -> Result<Option<RawOp>, Failure> {
        if let Self::Undecided = self {
            *self = match line {
                Line::Other => return Ok(None),
                Line::Interpreted | Line::Kind(_) => Self::Interpreted(Kinds::default()),
                _ => Self::ByAddress,
            };
        }
        match (self, line) {
            (_, Line::Other) | (Self::Interpreted(_), Line::Interpreted) => Ok(None),
            (Self::ByAddress, Line::Call(op)) => Ok(Some(op)),
            (Self::ByAddress, Line::Ends(address)) => Ok(Some(RawOp::Free { address })),
            (Self::Interpreted(kinds), Line::Kind(size)) => {
                kinds.add(size);
                Ok(None)
            }
            (Self::Interpreted(kinds), Line::Begins(kind)) => kinds.alloc(kind).map(Some),
            (Self::Interpreted(kinds), Line::Ends(kind)) => kinds.free(kind).map(Some),
            _ => Err(Failure::new("the file mixes lines of raw and interpreted files", REMEDY)),
        }
    }
}

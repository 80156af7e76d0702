//! heaptrack's raw file (`heaptrack -r`): `+ SIZE STACK POINTER` and `- POINTER` in hexadecimal, and times in steps.
//!
//! A realloc stands as `-` then `+`, written under one lock after it returned. The interpreted file, which heaptrack makes
//! by default, names no pointers and cannot be used.

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::event::{AllocCall, Birth};
use crate::header::Clock;
use crate::resolve::{RawOp, Window};

pub(super) const FORMAT: Format = Format {
    name: "heaptrack",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| version(line).is_some()),
    clock: |_| Clock::Measured,
    window: Window::CERTAIN,
    unknown: &[
        "threads",
        "times, but in steps of 10 ms",
        "alignment",
        "which blocks were asked to be zero",
        "realloc: it stands as a free and a new block",
        "memalign, pvalloc and reallocarray, which heaptrack does not see: their frees are unknown",
    ],
    convert,
};

/// The newest format that is known.
const FORMAT_MAX: u64 = 3;
const MEND: &str = "take another copy; heaptrack writes no such line into a raw file";

/// Format of the file, if this is its first line: `v VERSION FORMAT`.
fn version(line: &str) -> Option<u64> {
    let mut words = line.strip_prefix("v ")?.split(' ');
    let heaptrack = hex(words.next()).ok()?;
    let format = words.next().map_or(Ok(0), |word| hex(Some(word))).ok()?;
    (heaptrack >= 0x1_0000 && words.next().is_none()).then_some(format)
}

fn hex(word: Option<&str>) -> Result<u64, Failure> {
    let word = word.ok_or_else(|| Failure::new("a number is missing", MEND))?;
    u64::from_str_radix(word, 16).map_err(|_| Failure::new("a number is not hexadecimal, or too large", MEND))
}

/// What a line says of memory.
enum Line {
    Call(RawOp),
    /// Milliseconds since the start.
    Time(u64),
    Attached,
    Other,
    /// A line that only interpreted files have.
    Interpreted,
}

fn parse(line: &str) -> Result<Line, Failure> {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let parsed = match name {
        "+" => {
            let (size, _stack, address) = (hex(words.next())?, hex(words.next())?, hex(words.next())?);
            Line::Call(RawOp::Alloc { address, size, align_log2: 0, call: AllocCall::Malloc, birth: Birth::None })
        }
        "-" => Line::Call(RawOp::Free { address: hex(words.next())? }),
        "c" => Line::Time(hex(words.next())?),
        "A" => Line::Attached,
        "v" | "x" | "X" | "I" | "m" | "t" | "R" | "S" => return Ok(Line::Other),
        "a" | "i" | "s" => return Ok(Line::Interpreted),
        name if name.starts_with('#') => return Ok(Line::Other),
        _ => return Err(Failure::new("the line is none of heaptrack's", MEND)),
    };
    if words.next().is_some() { Err(Failure::new("the line has too many words", MEND)) } else { Ok(parsed) }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let Some(format) = input.line(Lines::Mixed)?.and_then(version) else {
        return Err(Failure::new("a heaptrack file begins with `v VERSION FORMAT`", "take another copy"));
    };
    if format > FORMAT_MAX {
        let why = format!("file format {format} is newer than {FORMAT_MAX}, the newest known");
        return Err(Failure::new(why, "use a newer hksim"));
    }
    let (mut time_ns, mut attached) = (0u64, false);
    while let Some(line) = input.line(Lines::Mixed)? {
        match parse(line) {
            Ok(Line::Call(op)) => sink.push_in_order(time_ns, 0, op)?,
            Ok(Line::Time(time_ms)) => time_ns = time_ns.max(time_ms.saturating_mul(1_000_000)),
            Ok(Line::Attached) => attached = true,
            Ok(Line::Interpreted) => {
                let why = "this is heaptrack's interpreted file, whose blocks have lost their identity";
                return Err(Failure::new(why, "record again with `heaptrack -r` (`--raw`), and import the .raw file"));
            }
            Ok(Line::Other) => (),
            // The last line of a killed program may be cut.
            Err(_) if input.is_at_end()? => sink.quality.unfinished_calls += 1,
            Err(why) => return Err(why),
        }
    }
    if attached {
        sink.note("heaptrack was attached to a running program: blocks made before are unknown".to_string());
    }
    Ok(())
}

//! Traces of the malloc-bench project: protocol buffers, one message per call.
//!
//! A file has `lines` (field 1, one message each) and the peak number of live blocks (field 2). A line contains a
//! malloc (field 1), free (2), realloc (3) or calloc (4). The fields of these messages are optional numbers: a missing
//! id is NULL, a missing number is 0.

use super::calls::align_log2;
use super::failure::Failure;
use super::input::{Head, Input};
use super::sink::Sink;
use super::{Format, no_times};
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "protobuf",
    recognise: |head: &Head| first_line(head.bytes()).is_some_and(|line| parse(line).is_ok_and(|op| op.is_some())),
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &["threads", "times", "which blocks leaked: all are freed at the end"],
    convert,
};

const REMEDY: &str = "use another copy; tracefile.proto of malloc-bench describes the format";
/// Maximum size of a line. A line has only a few numbers, so longer ones belong to another format.
const LINE_BYTES_MAX: usize = 256;
/// The field of a file that contains the lines.
const LINES: u64 = 1;
/// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// The message of the first line, if the file begins with one.
fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let (&[tag, length], rest) = bytes.split_first_chunk::<2>()?;
    (u64::from(tag) == LINES << 3 | BYTES && length < 128).then(|| rest.get(..usize::from(length))).flatten()
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut line = [0; LINE_BYTES_MAX];
    while let Some(tag) = varint(|| input.byte())? {
        let missing = || Failure::new("the file ends within a field", REMEDY);
        match (tag >> 3, tag & 7) {
            (LINES, BYTES) => {
                let length = varint(|| input.byte())?.ok_or_else(missing)?;
                let line = usize::try_from(length).ok().and_then(|length| line.get_mut(..length));
                let Some(line) = line else {
                    let why = format!("a line of {length} bytes; a call takes at most {LINE_BYTES_MAX}");
                    return Err(Failure::new(why, REMEDY));
                };
                if input.fill(line)? < line.len() {
                    return Err(missing());
                }
                match parse(line)? {
                    Some(op) => sink.push(0, op)?,
                    None => return Err(Failure::new("a line without a call", REMEDY)),
                }
            }
            (_, VARINT) => _ = varint(|| input.byte())?.ok_or_else(missing)?,
            (field, kind) => {
                return Err(Failure::new(
                    format!("field {field} of wire type {kind} is not part of a trace file"),
                    REMEDY,
                ));
            }
        }
    }
    Ok(())
}

/// A number in base 128, lowest digit first; `None` at the end of the file.
fn varint(mut byte: impl FnMut() -> Result<Option<u8>, Failure>) -> Result<Option<u64>, Failure> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some(byte) = byte()? else {
            return if shift == 0 { Ok(None) } else { Err(Failure::new("the file ends within a number", REMEDY)) };
        };
        let digit = u64::from(byte & 0x7F);
        if shift == 63 && digit > 1 {
            break;
        }
        value |= digit << shift;
        if byte < 0x80 {
            return Ok(Some(value));
        }
    }
    Err(Failure::new("a number above 2^64", REMEDY))
}

/// A message in memory.
struct Message<'a>(&'a [u8]);

enum Value<'a> {
    Number(u64),
    Message(&'a [u8]),
    Skipped,
}

impl<'a> Message<'a> {
    fn number(&mut self) -> Result<Option<u64>, Failure> {
        varint(|| {
            Ok(self.0.split_first().map(|(&byte, rest)| {
                self.0 = rest;
                byte
            }))
        })
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], Failure> {
        let parts = usize::try_from(bytes).ok().and_then(|bytes| self.0.split_at_checked(bytes));
        let (taken, rest) = parts.ok_or_else(|| Failure::new("a field goes beyond its line", REMEDY))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next field: its number and value.
    fn field(&mut self) -> Result<Option<(u64, Value<'a>)>, Failure> {
        let Some(tag) = self.number()? else { return Ok(None) };
        let missing = || Failure::new("a field goes beyond its line", REMEDY);
        let value = match tag & 7 {
            VARINT => Value::Number(self.number()?.ok_or_else(missing)?),
            BYTES => {
                let bytes = self.number()?.ok_or_else(missing)?;
                Value::Message(self.take(bytes)?)
            }
            FIXED_64 => self.take(8).map(|_| Value::Skipped)?,
            FIXED_32 => self.take(4).map(|_| Value::Skipped)?,
            kind => return Err(Failure::new(format!("wire type {kind} does not exist in protocol buffers"), REMEDY)),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// The values of fields 1 to 3.
    fn numbers(mut self) -> Result<[Option<u64>; 3], Failure> {
        let mut numbers = [None; 3];
        while let Some((field, value)) = self.field()? {
            if let (1..=3, Value::Number(number)) = (field, value) {
                numbers[field as usize - 1] = Some(number);
            }
        }
        Ok(numbers)
    }
}

/// The call of a line; `None` if it has none.
fn parse(line: &[u8]) -> Result<Option<RawOp>, Failure> {
    let mut message = Message(line);
    let mut call = None;
    while let Some((field, value)) = message.field()? {
        if let (1..=4, Value::Message(bytes)) = (field, value) {
            call = Some(op(field, Message(bytes).numbers()?)?);
        }
    }
    Ok(call)
}

fn op(field: u64, [first, second, third]: [Option<u64>; 3]) -> Result<RawOp, Failure> {
    let address = |id: Option<u64>| match id {
        None => Ok(0),
        Some(id) => id.checked_add(1).ok_or_else(|| Failure::new("an id above 2^64 - 2", REMEDY)),
    };
    Ok(match field {
        1 => {
            let align_log2 = align_log2(third.unwrap_or_default())?;
            let call = if align_log2 > 0 { AllocCall::Memalign } else { AllocCall::Malloc };
            RawOp::Alloc {
                address: address(first)?,
                size: second.unwrap_or_default(),
                align_log2,
                call,
                initial_touch: InitialTouch::None,
            }
        }
        2 => RawOp::Free { address: address(first)? },
        3 => RawOp::Realloc {
            old: address(second)?,
            new: address(first)?,
            size: third.unwrap_or_default(),
            call: ReallocCall::Realloc,
            initial_touch: InitialTouch::None,
        },
        _ => {
            let size = second.unwrap_or_default().saturating_mul(third.unwrap_or_default());
            RawOp::Alloc {
                address: address(first)?,
                size,
                align_log2: 0,
                call: AllocCall::Calloc,
                initial_touch: InitialTouch::None,
            }
        }
    })
}

//! memray's files of all allocations (`memray run`), version 13: a header, then records. A record is a byte followed by
//! numbers.
//!
//! A number is a varint. Most numbers are differences from the previous one of the same kind. Records are written under
//! one lock: a free is recorded before the call, an allocation after it. A realloc is recorded after the call, as a
//! free and an allocation.

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "memray",
    recognise: |head: &Head| head.bytes().starts_with(MAGIC) && head.bytes().get(FILE_FORMAT_AT) != Some(&AGGREGATED),
    clock: |_| Clock::Measured,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "times, except in steps of 10 ms",
        "alignment",
        "resizes: they are recorded as a free and a new block",
        "without --trace-python-allocators: Python's objects of up to 512 bytes, whose arenas are recorded",
    ],
    convert,
};

const MAGIC: &[u8] = b"memray\0";
const VERSION: u32 = 13;
/// Offset of the byte that marks a file with totals instead of allocations: after the magic, two versions and a flag.
const FILE_FORMAT_AT: usize = 7 + 4 + 4 + 1;
const AGGREGATED: u8 = 1;
const REMEDY: &str = "use another copy, or record again with `memray run -o FILE`";
/// Alignment of valloc and pvalloc.
const PAGE_LOG2: u8 = 12;
/// Recent addresses that a record can refer to by index.
const RECENT: usize = 15;

/// Whether a file was written by memray and contains only totals.
pub(super) fn is_aggregated(head: &Head) -> bool {
    head.bytes().starts_with(MAGIC) && head.bytes().get(FILE_FORMAT_AT) == Some(&AGGREGATED)
}

fn cut() -> Failure {
    Failure::new("the file ends within a record", REMEDY)
}

fn byte(input: &mut Input) -> Result<u8, Failure> {
    input.byte()?.ok_or_else(cut)
}

fn bytes<const N: usize>(input: &mut Input) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    if input.fill(&mut bytes)? == N { Ok(bytes) } else { Err(cut()) }
}

/// Skips a NUL-terminated text. Returns whether it was empty.
fn skip_text(input: &mut Input) -> Result<bool, Failure> {
    let mut is_empty = true;
    while byte(input)? != 0 {
        is_empty = false;
    }
    Ok(is_empty)
}

fn varint(input: &mut Input) -> Result<u64, Failure> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = byte(input)?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Failure::new("a number has more than 64 bits", REMEDY))
}

/// A number stored as the difference from the previous one, in zigzag encoding.
fn delta(input: &mut Input, last: &mut u64) -> Result<u64, Failure> {
    let zigzag = varint(input)?;
    *last = last.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg());
    Ok(*last)
}

/// Decoder state that earlier records set.
struct State {
    has_native: bool,
    thread: u64,
    time_ns: u64,
    recent: [u64; RECENT],
    last_pointer: u64,
    /// Number of records of mmap and munmap.
    mappings: u64,
}

/// Reads the header. Returns whether records have native frames.
fn head(input: &mut Input) -> Result<bool, Failure> {
    let magic: [u8; MAGIC.len()] = bytes(input)?;
    if magic != MAGIC {
        return Err(Failure::new("a memray file begins with `memray`", REMEDY));
    }
    let version = u32::from_le_bytes(bytes(input)?);
    if version != VERSION {
        let why = format!("unknown version {version} of memray's file format; {VERSION} is supported");
        return Err(Failure::new(why, "record again with memray 1.20, or use a newer hksim"));
    }
    let [.., has_native, file_format] = bytes::<6>(input)?;
    if file_format == AGGREGATED {
        return Err(Failure::new("the file contains only totals, no events", "record again without --aggregate"));
    }
    bytes::<32>(input)?; // counts of allocations and frames, times of start and end
    skip_text(input)?; // the command
    bytes::<{ 4 + 8 + 8 + 1 + 1 + 1 }>(input)?; // pid, thread, frames left out, Python's allocator, two flags
    skip_text(input)?; // Python's library, then two lists of paths
    for _ in 0..2 {
        while !skip_text(input)? {}
    }
    Ok(has_native != 0)
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let has_native = head(input)?;
    let mut state = State { has_native, thread: 0, time_ns: 0, recent: [0; RECENT], last_pointer: 0, mappings: 0 };
    let mut has_trailer = false;
    while let Some(first) = input.byte()? {
        if first == 1 {
            has_trailer = true;
            break;
        }
        // If the program was killed, the file can end anywhere.
        match state.record(first, input, sink) {
            Err(_) if input.is_at_end()? => {
                sink.quality.unfinished_calls += 1;
                break;
            }
            done => done?,
        }
    }
    sink.quality.foreign_lines += state.mappings;
    if !has_trailer {
        sink.note("the file has no end mark: the program was killed, or the file is truncated".to_string());
    }
    Ok(())
}

impl State {
    fn record(&mut self, first: u8, input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
        match first {
            0 => (),
            128.. => return self.allocation(first, input, sink),
            // A frame is entered.
            64.. => _ = (varint(input)?, varint(input)?),
            // A Python object is created or destroyed.
            32.. => {
                self.pointer(usize::from(first >> 1 & 15), input)?;
                if self.has_native && first & 1 == 1 {
                    varint(input)?;
                }
            }
            16.. => (),
            2 => {
                let [_, time_ms] = [varint(input)?, varint(input)?];
                self.time_ns = self.time_ns.max(time_ms.saturating_mul(1_000_000));
            }
            // A native frame.
            5 => _ = (varint(input)?, varint(input)?),
            // The start of the list of mapped files; it has no data.
            6 => (),
            7 => {
                skip_text(input)?;
                varint(input)?;
                bytes::<8>(input)?;
            }
            8 => {
                bytes::<8>(input)?;
                varint(input)?;
            }
            10 => _ = skip_text(input)?,
            12 => self.thread = u64::from_le_bytes(bytes(input)?),
            14 => {
                varint(input)?;
                skip_text(input)?;
                skip_text(input)?;
                varint(input)?;
                for _ in 0..varint(input)? {
                    byte(input)?;
                }
            }
            other => return Err(Failure::new(format!("no record begins with byte {other}"), REMEDY)),
        }
        Ok(())
    }

    /// The recent address at an index. The index after the last one means that a new address follows.
    fn pointer(&mut self, place: usize, input: &mut Input) -> Result<u64, Failure> {
        if let Some(&address) = self.recent.get(place) {
            return Ok(address);
        }
        let address = delta(input, &mut self.last_pointer)? << 3;
        self.recent.rotate_right(1);
        self.recent[0] = address;
        Ok(address)
    }

    fn allocation(&mut self, first: u8, input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
        let address = self.pointer(usize::from(first >> 3 & 15), input)?;
        let function = match first & 7 {
            0 => byte(input)?,
            function => function,
        };
        // 1 to 4 are functions of Python's allocator, the others C functions.
        let (call, align_log2) = match function {
            1 | 5 => return sink.push_in_order(self.time_ns, self.thread, RawOp::Free { address }),
            2 | 6 => (AllocCall::Malloc, 0),
            3 | 8 => (AllocCall::Calloc, 0),
            4 | 7 => (AllocCall::Realloc, 0),
            9 => (AllocCall::PosixMemalign, 0),
            10 => (AllocCall::AlignedAlloc, 0),
            11 => (AllocCall::Memalign, 0),
            12 => (AllocCall::Valloc, PAGE_LOG2),
            13 => (AllocCall::Pvalloc, PAGE_LOG2),
            14 | 15 => {
                self.size(input)?;
                self.mappings += 1;
                return Ok(());
            }
            other => return Err(Failure::new(format!("no function has number {other}"), REMEDY)),
        };
        let size = self.size(input)?;
        let op = RawOp::Alloc { address, size, align_log2, call, initial_touch: InitialTouch::None };
        sink.push_in_order(self.time_ns, self.thread, op)
    }

    /// Skips the native frame, if the records have one, and reads the size.
    fn size(&mut self, input: &mut Input) -> Result<u64, Failure> {
        if self.has_native {
            varint(input)?;
        }
        varint(input)
    }
}

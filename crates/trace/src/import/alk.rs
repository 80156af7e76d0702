//! Processed traces of the malloc-trace-replay tools: 24-byte little-endian records, without a file header.
//!
//! A record is a u8 type and a u56 register number, then two u64. A register refers to one block. A record belongs to
//! the thread of the last `switch_thread`.

use super::failure::Failure;
use super::input::{Head, Input};
use super::records::{align_log2, next, u64_at};
use super::sink::Sink;
use super::{Format, no_times};
use crate::event::{AllocCall, InitialTouch, Op, ReallocCall};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "alk",
    recognise,
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &[
        "times, whose unit is not documented",
        "exact sizes: they are rounded up to 8 bytes",
        "which blocks were requested zeroed",
        "which blocks leaked: all are freed at the end",
    ],
    convert,
};

const RECORD_BYTES: usize = 24;
const SWITCH_THREAD: u8 = 5;
const TIME: u8 = 7;
/// Number of registers in the tools' own replayer.
const REGISTERS: u64 = 1 << 30;

/// The format has no magic number. A file matches if a `switch_thread` comes before all calls and each record in the
/// head is valid.
fn recognise(head: &Head) -> bool {
    let mut records = head.bytes().chunks_exact(RECORD_BYTES).peekable();
    while records.next_if(|record| record[0] == TIME).is_some() {}
    records.peek().is_some_and(|record| record[0] == SWITCH_THREAD) && records.all(is_plausible)
}

fn is_plausible(record: &[u8]) -> bool {
    let (register, first, second) = (u64_at(record, 0) >> 8, u64_at(record, 8), u64_at(record, 16));
    let is_size = |bytes: u64| bytes < Op::BLOCK_BYTES_END && bytes.is_multiple_of(8);
    register < REGISTERS
        && match record[0] {
            0 => is_size(first),
            3 => is_size(first) && second.is_power_of_two(),
            1 | 2 | SWITCH_THREAD | 6 | TIME => true,
            4 => first < REGISTERS && is_size(second),
            _ => false,
        }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut thread = 0;
    while let Some(record) = next::<RECORD_BYTES>(input)? {
        let (register, first, second) = (u64_at(&record, 0) >> 8, u64_at(&record, 8), u64_at(&record, 16));
        let address = register + 1;
        let op = match record[0] {
            0 => RawOp::Alloc {
                address,
                size: first,
                align_log2: 0,
                call: AllocCall::Malloc,
                initial_touch: InitialTouch::None,
            },
            1 | 2 => RawOp::Free { address },
            3 => RawOp::Alloc {
                address,
                size: first,
                align_log2: align_log2(second)?,
                call: AllocCall::Memalign,
                initial_touch: InitialTouch::None,
            },
            4 => {
                let new = first.checked_add(1).ok_or("the register is above 2^64 - 2")?;
                RawOp::Realloc {
                    old: address,
                    new,
                    size: second,
                    call: ReallocCall::Realloc,
                    initial_touch: InitialTouch::None,
                }
            }
            SWITCH_THREAD => {
                thread = first;
                continue;
            }
            6 => RawOp::ThreadExit,
            TIME => continue,
            other => {
                let why = format!("record type {other} is not from 0 to 7");
                return Err(Failure::new(why, "decompress lz4 first (lz4 -d), or use another copy"));
            }
        };
        sink.push(thread, op)?;
    }
    Ok(())
}

//! Trace records of glibc's malloc tracing branch: 64 bytes each, little-endian, of a 64-bit program.
//!
//! i32 tid at byte 0; u8 type at 4, then flags; u64 ptr1 at 8, ptr2 at 16, size at 24, size2 at 32. A record is
//! reserved when its call begins, so an address may seem to be reused before it is freed. The merge of
//! [`crate::resolve`] corrects the order.

use super::failure::Failure;
use super::input::{Head, Input};
use super::records::{align_log2, next, u64_at};
use super::sink::Sink;
use super::{Format, no_times};
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "glibc",
    recognise: |head: &Head| is_magic(head.bytes()),
    clock: no_times,
    window: WaitLimits::DEFAULT,
    unknown: &["times", "aligned_alloc, which is recorded as memalign", "when threads end"],
    convert,
};

const RECORD_BYTES: usize = 64;
const PAGE_LOG2: u8 = 12;
const MAGIC_TYPE: u8 = 255;
const MAGIC: u64 = 0x1234;
const POINTER_BYTES: u64 = 8;

/// Whether this is the first record of a trace of a 64-bit program.
fn is_magic(record: &[u8]) -> bool {
    record.len() >= RECORD_BYTES
        && record[4] == MAGIC_TYPE
        && u64_at(record, 8) == MAGIC
        && u64_at(record, 24) == POINTER_BYTES
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    if !next::<RECORD_BYTES>(input)?.is_some_and(|record| is_magic(&record)) {
        let why = "the first record is not the one that a 64-bit little-endian program writes";
        return Err(Failure::new(why, "only traces of such programs can be read"));
    }
    while let Some(record) = next::<RECORD_BYTES>(input)? {
        if let Some(op) = call(&record)? {
            let tid = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
            sink.push(u64::from(tid), op)?;
        }
    }
    Ok(())
}

/// The call in a record; `None` if the record was reserved but not used.
fn call(record: &[u8; RECORD_BYTES]) -> Result<Option<RawOp>, Failure> {
    let [ptr1, ptr2, size, size2] = [8, 16, 24, 32].map(|at| u64_at(record, at));
    let alloc =
        |call, align_log2| RawOp::Alloc { address: ptr2, size, align_log2, call, initial_touch: InitialTouch::None };
    Ok(Some(match record[4] {
        0 | MAGIC_TYPE => return Ok(None),
        1 => alloc(AllocCall::Malloc, 0),
        2 => alloc(AllocCall::Calloc, 0),
        3 => RawOp::Free { address: ptr1 },
        4 => {
            RawOp::Realloc { old: ptr1, new: ptr2, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None }
        }
        5 => alloc(AllocCall::Memalign, align_log2(size2)?),
        6 => alloc(AllocCall::Valloc, PAGE_LOG2),
        7 => alloc(AllocCall::Pvalloc, PAGE_LOG2),
        // ptr1 is the return value of posix_memalign: an errno, or 0.
        8 => RawOp::Alloc {
            address: if ptr1 == 0 { ptr2 } else { 0 },
            size,
            align_log2: align_log2(size2)?,
            call: AllocCall::PosixMemalign,
            initial_touch: InitialTouch::None,
        },
        other => {
            let why = format!("record type {other} is not from 0 to 8");
            return Err(Failure::new(why, "use another copy; this one is damaged here"));
        }
    }))
}

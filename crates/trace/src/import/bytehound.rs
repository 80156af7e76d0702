//! bytehound's `export-replay`: the number of slots as a u64, then 32-byte records of four u64, little-endian.
//!
//! Record kinds 1 (allocation), 2 (free) and 3 (realloc) have a slot, a time in microseconds and a size. Kinds 4 and 5
//! describe the call stack. Kind 0 ends the file. In older versions the number of records follows the number of slots,
//! and there are only kinds 1 to 3.

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input};
use super::records::{next, u64_at};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch, Op, ReallocCall};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "bytehound",
    recognise: |head: &Head| layout(head.bytes()).is_some(),
    clock: |_| Clock::Measured,
    window: WaitLimits::CERTAIN,
    unknown: &["threads", "times below a microsecond", "alignment", "which blocks were requested zeroed", "call sites"],
    convert,
};

const RECORD_BYTES: usize = 32;
const END: u64 = 0;
/// Maximum number of slots: the number of object ids.
const SLOTS_MAX: u64 = u32::MAX as u64;

/// Number of bytes before the first record: 8, or 16 in older versions. `None` if the file is of another format. The
/// format has no magic number, so each record in the head must be valid.
fn layout(head: &[u8]) -> Option<usize> {
    let slots = u64_at(head, 0);
    let fits = |start: &usize| {
        let mut records = head.get(*start..).unwrap_or_default().chunks_exact(RECORD_BYTES).peekable();
        let first = records.peek().map(|record| u64_at(record, 0));
        first.is_some_and(|kind| kind != END) && records.all(|record| is_plausible(record, slots))
    };
    (slots > 0 && slots <= SLOTS_MAX).then(|| [8, 16].into_iter().find(fits)).flatten()
}

fn is_plausible(record: &[u8], slots: u64) -> bool {
    let (kind, slot, size) = (u64_at(record, 0), u64_at(record, 8), u64_at(record, 24));
    match kind {
        1 | 3 => slot < slots && size < Op::BLOCK_BYTES_END,
        2 => slot < slots,
        END | 4 | 5 => true,
        _ => false,
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let head = input.head()?;
    let start =
        layout(head.bytes()).ok_or_else(|| Failure::new("this is not a file of `bytehound export-replay`", REMEDY))?;
    let slots = next::<8>(input)?.map_or(0, |bytes| u64_at(&bytes, 0));
    if start == 16 {
        next::<8>(input)?;
    }
    let mut ended = start == 16;
    while let Some(record) = next::<RECORD_BYTES>(input)? {
        let [kind, slot, time_us, size] = [0, 8, 16, 24].map(|at| u64_at(&record, at));
        if kind == END {
            ended = true;
            break;
        }
        if matches!(kind, 4 | 5) {
            continue;
        }
        if slot >= slots {
            return Err(Failure::new(
                format!("slot {slot} is not below {slots}, the number of slots of this file"),
                REMEDY,
            ));
        }
        let address = slot + 1;
        let op = match kind {
            1 => RawOp::Alloc {
                address,
                size,
                align_log2: 0,
                call: AllocCall::Malloc,
                initial_touch: InitialTouch::None,
            },
            2 => RawOp::Free { address },
            // bytehound's replayer calls realloc with NULL if the slot is empty.
            3 if !sink.is_live(address) => RawOp::Realloc {
                old: 0,
                new: address,
                size,
                call: ReallocCall::Realloc,
                initial_touch: InitialTouch::None,
            },
            3 => RawOp::Realloc {
                old: address,
                new: address,
                size,
                call: ReallocCall::Realloc,
                initial_touch: InitialTouch::None,
            },
            other => return Err(Failure::new(format!("record kind {other} is not from 0 to 5"), REMEDY)),
        };
        sink.push_in_order(time_us.saturating_mul(1000), 0, op)?;
    }
    if !ended {
        sink.note("the file has no end mark: it may be truncated".to_string());
    }
    Ok(())
}

const REMEDY: &str = "use another copy; `bytehound export-replay -o FILE` writes it";

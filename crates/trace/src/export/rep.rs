//! The `.rep` text of university allocator assignments (malloc lab): four numbers, then lines `a ID BYTES`, `r ID
//! BYTES` and `f ID`.
//!
//! All events become those of one thread, in the order of the trace. Ids are those of the trace, so an id is reused
//! after its `f`.

use super::Target;
use crate::error::TraceError;
use crate::event::{AllocCall, Event, Op, SiteId};
use crate::source::EventSource;

/// The weight 1 means that the trace counts in the scores for both throughput and memory utilisation.
const WEIGHT: u32 = 1;

pub(super) fn write(source: &mut dyn EventSource, to: &mut Target<'_>) -> Result<(), TraceError> {
    let mut size = Size::default();
    while let Some(batch) = source.next_batch()? {
        batch.iter().for_each(|event| size.count(event));
    }
    source.rewind()?;
    let ids = source.summary().objects_peak;
    for number in [size.live_bytes_peak, ids.into(), size.lines.into(), WEIGHT.into()] {
        to.line(format_args!("{number}"))?;
    }
    let is_threaded = source.summary().threads > 1;
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            match call(&event.op) {
                Some(call) => {
                    note(event, is_threaded, to);
                    match call {
                        Call::Alloc { id, bytes } => to.line(format_args!("a {id} {bytes}"))?,
                        Call::Resize { id, bytes } => to.line(format_args!("r {id} {bytes}"))?,
                        Call::Free { id } => to.line(format_args!("f {id}"))?,
                    }
                }
                None => to.lose("event that is not an allocation, resize or free, left out"),
            }
        }
    }
    Ok(())
}

/// A line of the format.
enum Call {
    Alloc { id: u32, bytes: u64 },
    Resize { id: u32, bytes: u64 },
    Free { id: u32 },
}

fn call(op: &Op) -> Option<Call> {
    // Readers of the format treat a block of 0 bytes as a failure, so 1 byte is written instead.
    match *op {
        Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
            Some(Call::Alloc { id: object.0, bytes: size.max(1) })
        }
        Op::Realloc { object, size, .. } => Some(Call::Resize { id: object.0, bytes: size }),
        Op::Free { object } | Op::ReallocFree { object, .. } => Some(Call::Free { id: object.0 }),
        _ => None,
    }
}

/// Counts what a written line does not represent.
fn note(event: &Event, is_threaded: bool, to: &mut Target<'_>) {
    if is_threaded {
        to.lose("thread of a call");
    }
    if event.site != SiteId::UNKNOWN {
        to.lose("call site of a call");
    }
    match event.op {
        Op::Alloc { align_log2: 1.., .. } => to.lose("alignment of a block"),
        Op::Alloc { call: AllocCall::Calloc, .. } => to.lose("calloc, written as allocation"),
        Op::ReallocUnknown { .. } => to.lose("realloc of an unknown pointer, written as allocation"),
        Op::ReallocFree { .. } => to.lose("realloc to 0 bytes, written as free"),
        _ => (),
    }
    if let Op::Alloc { size: 0, .. } | Op::ReallocUnknown { size: 0, .. } = event.op {
        to.lose("block of 0 bytes, written as 1 byte");
    }
}

/// The values of the format's first lines.
#[derive(Default)]
struct Size {
    lines: u64,
    bytes: Vec<u64>,
    live_bytes: u128,
    live_bytes_peak: u128,
}

impl Size {
    fn count(&mut self, event: &Event) {
        let Some(call) = call(&event.op) else { return };
        self.lines += 1;
        let (id, bytes) = match call {
            Call::Alloc { id, bytes } | Call::Resize { id, bytes } => (id as usize, bytes),
            Call::Free { id } => (id as usize, 0),
        };
        if self.bytes.len() <= id {
            self.bytes.resize(id + 1, 0);
        }
        let before = std::mem::replace(&mut self.bytes[id], bytes);
        self.live_bytes = self.live_bytes - u128::from(before) + u128::from(bytes);
        self.live_bytes_peak = self.live_bytes_peak.max(self.live_bytes);
    }
}

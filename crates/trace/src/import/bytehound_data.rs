//! bytehound's recordings, `memory-profiling_*.dat`. They are written by `libbytehound.so`, `bytehound gather` and
//! `bytehound squeeze` of versions 0.1 to 0.11.
//!
//! Chunks ([`Chunks`]) contain one stream of events. An event is a u32 with the kind, then the kind's fields without
//! gaps, little-endian. New versions add kinds and never change old ones. Times are microseconds of the monotonic
//! clock, taken after the call.
//!
//! Since 0.6 an event identifies its block by an id that is never reused. The events of one block are in order.
//! bytehound's thread writes events in batches, and events of different blocks may be out of order within a batch. So
//! they are sorted by time. Older files identify blocks by address.

mod chunks;
mod events;

use super::Format;
use super::failure::Failure;
use super::input::{Head, Input};
use super::sink::Sink;
use crate::event::{AllocCall, InitialTouch, ReallocCall};
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};
use chunks::Chunks;
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "bytehound-data",
    recognise: |head: &Head| {
        chunks::first_bytes(head.bytes(), events::HEADER_BYTES_MIN).is_some_and(|first| events::is_header(&first))
    },
    clock: |_| Clock::Measured,
    window: WaitLimits::DEFAULT,
    unknown: &[
        "times below a microsecond",
        "alignment",
        "calls that failed, except realloc, which is recorded as free",
        "call sites",
    ],
    convert,
};

const REMEDY: &str = "take another copy, or record again";

/// First synthetic address: above all addresses in user space.
const ADDRESSES_START: u64 = 1 << 56;

/// The flag of allocations by calloc.
const IS_CALLOC: u32 = 1 << 31;

/// The id of a block: its thread and its number in the thread.
type Id = [u64; 2];
/// The id of all blocks allocated while bytehound was not recording.
const UNTRACKED: Id = [0, 0];

/// The settings that make bytehound omit short-lived blocks.
const CULLING: [&[u8]; 2] =
    [b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=1", b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=true"];

/// The live blocks with ids, and their synthetic addresses. The addresses are never reused, so that out-of-order events
/// cannot mix up two blocks.
#[derive(Default)]
struct Blocks {
    live: HashMap<Id, u64>,
    synthetic: u64,
}

impl Blocks {
    fn add(&mut self, id: Id) -> u64 {
        let address = ADDRESSES_START + self.synthetic;
        self.synthetic += 1;
        self.live.insert(id, address);
        address
    }

    /// The address of a block that is resized or freed. An unknown block keeps its recorded address, at which no block
    /// is live.
    fn known(&self, id: Option<Id>, pointer: u64) -> u64 {
        id.and_then(|id| self.live.get(&id).copied()).unwrap_or(pointer)
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut chunks = Chunks::new(input);
    let mut reading = Reading { blocks: Blocks::default(), is_culled: false };
    events::header(&mut chunks)?;
    loop {
        match reading.next_event(&mut chunks, sink) {
            Ok(true) => (),
            Err(why) if !chunks.is_cut() => return Err(why),
            Ok(false) | Err(_) => break,
        }
    }
    // If the program was killed, the file can end anywhere.
    if chunks.is_cut() {
        sink.quality.unfinished_calls += 1;
        sink.note(
            "the file ends within a chunk or an event: the program was killed, or the file is truncated".to_string(),
        );
    }
    if reading.is_culled {
        sink.note("bytehound has omitted short-lived blocks".to_string());
    }
    Ok(())
}

struct Reading {
    blocks: Blocks,
    is_culled: bool,
}

/// The common last fields of allocations and resizes.
struct Body {
    pointer: u64,
    size: u64,
    thread: u64,
    call: AllocCall,
}

fn body(chunks: &mut Chunks) -> Result<Body, Failure> {
    let [pointer, size, _backtrace] = chunks.u64s()?;
    let [thread, flags, _usable_more] = chunks.u32s()?;
    chunks.u64s::<1>()?;
    let call = if flags & IS_CALLOC == 0 { AllocCall::Malloc } else { AllocCall::Calloc };
    Ok(Body { pointer, size, thread: thread.into(), call })
}

impl Reading {
    /// Reads the next event; false at the end.
    fn next_event(&mut self, chunks: &mut Chunks, sink: &mut Sink) -> Result<bool, Failure> {
        if chunks.is_at_end()? {
            return Ok(false);
        }
        let [kind] = chunks.u32s()?;
        let has_id = matches!(kind, events::ALLOC_EX | events::REALLOC_EX | events::FREE_EX);
        let id = if has_id { Some(chunks.u64s()?).filter(|id| *id != UNTRACKED) } else { None };
        match kind {
            events::ALLOC | events::ALLOC_EX => {
                let [time_us] = chunks.u64s()?;
                let Body { pointer, size, thread, call } = body(chunks)?;
                let address = id.map_or(pointer, |id| self.blocks.add(id));
                let op = RawOp::Alloc { address, size, align_log2: 0, call, initial_touch: InitialTouch::None };
                sink.push_at(nanoseconds(time_us), thread, op)?;
            }
            events::REALLOC | events::REALLOC_EX => {
                let [time_us, old_pointer] = chunks.u64s()?;
                let Body { pointer, size, thread, .. } = body(chunks)?;
                let old = self.blocks.known(id, old_pointer);
                let new = match id {
                    Some(id) if !self.blocks.live.contains_key(&id) => self.blocks.add(id),
                    Some(_) => old,
                    None => pointer,
                };
                let op =
                    RawOp::Realloc { old, new, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None };
                sink.push_at(nanoseconds(time_us), thread, op)?;
            }
            events::FREE | events::FREE_EX => {
                let [time_us, pointer, _backtrace] = chunks.u64s()?;
                let [thread] = chunks.u32s()?;
                let address = self.blocks.known(id, pointer);
                id.and_then(|id| self.blocks.live.remove(&id));
                sink.push_at(nanoseconds(time_us), thread.into(), RawOp::Free { address })?;
            }
            events::ENVIRONMENT => {
                let entry = chunks.text()?;
                self.is_culled |= CULLING.contains(&entry.as_slice());
            }
            other => {
                self.is_culled |= other == events::GROUP_STATISTICS;
                events::skip(other, chunks)?;
            }
        }
        Ok(true)
    }
}

fn nanoseconds(time_us: u64) -> u64 {
    time_us.saturating_mul(1000)
}

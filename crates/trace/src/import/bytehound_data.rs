//! bytehound's recordings, `memory-profiling_*.dat`: what `libbytehound.so`, `bytehound gather` and `bytehound squeeze` write, in
//! all versions from 0.1 to 0.11.
//!
//! Chunks ([`Chunks`]) hold one stream of events: a u32 that says which kind, then the kind's fields without gaps, little-endian. A
//! version adds kinds and changes none. Times are microseconds of the monotonic clock, taken after the call.
//!
//! Since 0.6 an event names its block by an id that is never used again. The events of one block stand in order; others may stand
//! apart by as much as bytehound's thread writes at once, so they are sorted by time. Older files name blocks by address.

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
        "calls that failed, but for realloc, which stands as free",
        "call sites",
    ],
    convert,
};

const MEND: &str = "take another copy, or record again";

/// Where made-up addresses begin: above those that a program has.
const ADDRESSES_START: u64 = 1 << 56;

/// An allocation's flag: calloc.
const IS_CALLOC: u32 = 1 << 31;

/// What a block is named by: its thread and its number there.
type Id = [u64; 2];
/// The id of a block that was made while bytehound did not record.
const UNTRACKED: Id = [0, 0];

/// The settings under which bytehound leaves out what lived shortly.
const CULLING: [&[u8]; 2] =
    [b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=1", b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=true"];

/// Live blocks that have an id, and the addresses made up for them. Those are never used again, so that no order of events
/// can mix two blocks up.
#[derive(Default)]
struct Blocks {
    live: HashMap<Id, u64>,
    made_up: u64,
}

impl Blocks {
    fn born(&mut self, id: Id) -> u64 {
        let address = ADDRESSES_START + self.made_up;
        self.made_up += 1;
        self.live.insert(id, address);
        address
    }

    /// The address of a block that changes. One that was never seen keeps its own, where nothing is live.
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
    // A killed program's file ends anywhere.
    if chunks.is_cut() {
        sink.quality.unfinished_calls += 1;
        sink.note("the file ends within a chunk or an event: the program was killed, or the file cut".to_string());
    }
    if reading.is_culled {
        sink.note("bytehound has left blocks out that lived shortly".to_string());
    }
    Ok(())
}

struct Reading {
    blocks: Blocks,
    is_culled: bool,
}

/// What the events of allocations and resizes end with.
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
    /// Takes the next event; false at the end.
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
                let address = id.map_or(pointer, |id| self.blocks.born(id));
                let op = RawOp::Alloc { address, size, align_log2: 0, call, initial_touch: InitialTouch::None };
                sink.push_at(nanoseconds(time_us), thread, op)?;
            }
            events::REALLOC | events::REALLOC_EX => {
                let [time_us, old_pointer] = chunks.u64s()?;
                let Body { pointer, size, thread, .. } = body(chunks)?;
                let old = self.blocks.known(id, old_pointer);
                let new = match id {
                    Some(id) if !self.blocks.live.contains_key(&id) => self.blocks.born(id),
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

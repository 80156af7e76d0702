//! Android's `record_allocs` text: `TID: op POINTER arguments START_NS END_NS`.
//!
//! Pointers are generated ([`ObjectAddresses`]). Start and end are equal, as a trace has one time per call.

use super::Target;
use super::addresses::ObjectAddresses;
use crate::error::TraceError;
use crate::event::{AllocCall, Event, InitialTouch, Op, ReallocCall, SiteId};
use crate::source::EventSource;

pub(super) fn write(source: &mut dyn EventSource, to: &mut Target<'_>) -> Result<(), TraceError> {
    let mut addresses = ObjectAddresses::default();
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            line(event, &mut addresses, to)?;
        }
    }
    Ok(())
}

fn line(event: &Event, addresses: &mut ObjectAddresses, to: &mut Target<'_>) -> Result<(), TraceError> {
    let (tid, at) = (event.thread.0 + 1, event.time_ns);
    if event.site != SiteId::UNKNOWN {
        to.lose("call site, left out");
    }
    match event.op {
        Op::Alloc { object, size, align_log2, call, initial_touch } => {
            lose_initial_touch(initial_touch, to);
            let pointer = addresses.allocate(object, align_log2);
            alloc(event, Block { pointer, size, align_log2, call }, to)
        }
        Op::AllocFailed { size, align_log2, call } => alloc(event, Block { pointer: 0, size, align_log2, call }, to),
        Op::Realloc { object, size, call, initial_touch } => {
            lose_initial_touch(initial_touch, to);
            lose_reallocarray(call, to);
            let pointer = addresses.get(object);
            to.line(format_args!("{tid}: realloc {pointer:#x} {pointer:#x} {size} {at} {at}"))
        }
        Op::ReallocUnknown { object, size, .. } => {
            to.lose("realloc of an unknown pointer, written as realloc of NULL");
            let pointer = addresses.allocate(object, 0);
            to.line(format_args!("{tid}: realloc {pointer:#x} 0x0 {size} {at} {at}"))
        }
        // A reader would take a failed realloc to 0 bytes for one that freed its block.
        Op::ReallocFailed { size: 0, .. } => lost(to, "realloc to 0 bytes that failed, left out"),
        Op::ReallocFailed { object, size, call } => {
            lose_reallocarray(call, to);
            to.line(format_args!("{tid}: realloc 0x0 {:#x} {size} {at} {at}", addresses.get(object)))
        }
        Op::ReallocFree { object, call } => {
            lose_reallocarray(call, to);
            to.line(format_args!("{tid}: realloc 0x0 {:#x} 0 {at} {at}", addresses.free(object)))
        }
        Op::Free { object } => to.line(format_args!("{tid}: free {:#x} {at} {at}", addresses.free(object))),
        Op::FreeNull => to.line(format_args!("{tid}: free 0x0 {at} {at}")),
        Op::ThreadExit => to.line(format_args!("{tid}: thread_done 0x0 {at}")),
        Op::FreeUnknown => lost(to, "free of an unknown pointer, left out"),
        Op::UsableSize { .. } => lost(to, "malloc_usable_size, left out"),
        Op::ThreadStart => lost(to, "thread start, left out"),
        Op::Fork { .. } => lost(to, "fork, left out"),
        Op::ForkEnd { .. } => lost(to, "end of a forked child, left out"),
        Op::Exec => lost(to, "exec, left out"),
        Op::Mark { .. } => lost(to, "mark, left out"),
        Op::Touch { .. } => lost(to, "touch, left out"),
        Op::MemoryPolicy { .. } => lost(to, "memory policy, left out"),
    }
}

/// An allocating call and what it returned.
struct Block {
    pointer: u64,
    size: u64,
    align_log2: u8,
    call: AllocCall,
}

fn alloc(event: &Event, block: Block, to: &mut Target<'_>) -> Result<(), TraceError> {
    let Block { pointer, size, align_log2, call } = block;
    let (tid, at) = (event.thread.0 + 1, event.time_ns);
    match call {
        AllocCall::Malloc if align_log2 == 0 => to.line(format_args!("{tid}: malloc {pointer:#x} {size} {at} {at}")),
        AllocCall::Calloc if align_log2 == 0 => to.line(format_args!("{tid}: calloc {pointer:#x} 1 {size} {at} {at}")),
        AllocCall::Realloc | AllocCall::Reallocarray if align_log2 == 0 => {
            if call == AllocCall::Reallocarray {
                to.lose("reallocarray, written as realloc");
            }
            to.line(format_args!("{tid}: realloc {pointer:#x} 0x0 {size} {at} {at}"))
        }
        _ => {
            if call != AllocCall::Memalign {
                to.lose("aligned call, written as memalign");
            }
            to.line(format_args!("{tid}: memalign {pointer:#x} {} {size} {at} {at}", 1u64 << align_log2))
        }
    }
}

fn lose_initial_touch(initial_touch: InitialTouch, to: &mut Target<'_>) {
    if initial_touch != InitialTouch::None {
        to.lose("initial touch of a block, left out");
    }
}

fn lose_reallocarray(call: ReallocCall, to: &mut Target<'_>) {
    if call == ReallocCall::Reallocarray {
        to.lose("reallocarray, written as realloc");
    }
}

fn lost(to: &mut Target<'_>, what: &'static str) -> Result<(), TraceError> {
    to.lose(what);
    Ok(())
}

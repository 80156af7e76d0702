//! The event that is performed, with its objects.

use std::ops::Range;

use hksim_trace::event::{AllocCall, Event, ObjectId, Op};
use hksim_trace::row::Row;

use crate::breakdown::During;

/// An object of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its block; `None` if its allocation failed, or it is dead.
    pub start: Option<u64>,
    /// Its requested bytes.
    pub bytes: u64,
    /// The call site that allocated it.
    pub site: u32,
}

impl Object {
    /// The bytes of its block.
    pub fn range(&self) -> Option<Range<u64>> {
        self.start.map(|start| start..start + self.bytes)
    }
}

/// The event that is performed.
#[derive(Clone, Debug)]
pub struct Current {
    /// Its index in the trace.
    pub number: u64,
    /// The event.
    pub event: Event,
    /// The requested bytes of its object, or of its request.
    pub request_bytes: Option<u64>,
    /// The call site that allocated its object; 0 if it is unknown.
    pub site: u32,
    /// The block of its object before the event.
    pub before: Option<Range<u64>>,
    /// The block that the allocator returned.
    pub placed: Option<Range<u64>>,
}

impl Current {
    /// An event of an object as it was before.
    pub fn new(number: u64, event: Event, object: Object) -> Current {
        let asked = match event.op {
            Op::Alloc { size, .. }
            | Op::Realloc { size, .. }
            | Op::ReallocUnknown { size, .. }
            | Op::AllocFailed { size, .. }
            | Op::ReallocFailed { size, .. } => Some(size),
            _ => None,
        };
        let before = if event.op.creates_object() { None } else { object.range() };
        let site = if event.op.asks_for_memory() { event.site.0 } else { object.site };
        Current {
            number,
            event,
            request_bytes: asked.or(event.op.object().map(|_| object.bytes)),
            site,
            before,
            placed: None,
        }
    }

    /// The object.
    pub fn object(&self) -> Option<ObjectId> {
        self.event.op.object()
    }

    /// Whether an address is in the block of the event, before or after it.
    pub fn contains(&self, address: u64) -> bool {
        self.before.iter().chain(&self.placed).any(|range| range.contains(&address))
    }

    /// The function that the allocator performs.
    pub fn call(&self) -> During {
        let row = Row::of(&self.event);
        During::Call(row.call.unwrap_or(row.op))
    }

    /// Whether the allocator must return zeros.
    pub fn zeroes(&self) -> bool {
        matches!(self.event.op, Op::Alloc { call: AllocCall::Calloc, .. })
    }

    /// Whether the allocator takes a block back and returns none.
    pub fn frees(&self) -> bool {
        self.event.op.frees_object()
    }

    /// Whether the allocator copies a block.
    pub fn copies(&self) -> bool {
        matches!(self.event.op, Op::Realloc { .. }) && self.before.is_some()
    }
}

//! Compact forms of the most common calls, before and after the merge.

use super::objects::is_ordinary;
use super::{RawEvent, RawOp};
use crate::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};

/// The function called. The numbers are those of the file format's op column.
///
/// Eight bytes, so that [`Plain`] has no padding. Compilers copy padding separately; a later load of both parts then
/// misses store-to-load forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PlainCall {
    /// `malloc(size)`.
    Malloc = 0,
    /// `calloc(n, size)`.
    Calloc = 3,
    /// `free(address)`.
    Free = 6,
}

impl PlainCall {
    fn alloc(self) -> AllocCall {
        if self == PlainCall::Calloc { AllocCall::Calloc } else { AllocCall::Malloc }
    }
}

/// A `malloc`, `calloc` or `free` of an ordinary block without call site or initial touch: nearly all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    pub(super) time_ns: u64,
    pub(super) address: u64,
    pub(super) size: u32,
    pub(super) thread: u32,
    pub(super) call: PlainCall,
}

const _: () = assert!(size_of::<Plain>() == 32, "no padding");

impl Plain {
    /// Fills unused entries of a buffer.
    pub(super) const NONE: Plain = Plain { time_ns: 0, address: 0, size: 0, thread: 0, call: PlainCall::Malloc };

    /// A call by `thread` (any unique number) at a time in nanoseconds; the size of a free is 0. `None` if the address
    /// is not that of an ordinary block: 0, not a multiple of 8, or at least 2^47.
    #[inline(always)]
    pub fn new(time_ns: u64, thread: u32, call: PlainCall, address: u64, size: u32) -> Option<Self> {
        is_ordinary(address).then_some(Plain { time_ns, address, size, thread, call })
    }

    /// Nanoseconds since the start of the recording.
    #[inline(always)]
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// The thread, as passed to [`Plain::new`].
    #[inline(always)]
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The call as a [`RawEvent`].
    pub fn raw(&self) -> RawEvent {
        let &Plain { address, size, .. } = self;
        let op = match self.call {
            PlainCall::Free => RawOp::Free { address },
            call => {
                let (size, call) = (size.into(), call.alloc());
                RawOp::Alloc { address, size, align_log2: 0, call, initial_touch: InitialTouch::None }
            }
        };
        RawEvent::new(self.time_ns, self.thread, op)
    }

    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        self.call == PlainCall::Free
    }
}

/// A [`Plain`] call after the merge. Only the merge creates these, so they are in order and their objects are right.
#[derive(Clone, Copy, Debug)]
pub struct Resolved {
    pub(crate) time_ns: u64,
    /// The object allocated or freed.
    pub(crate) object: u32,
    /// Requested bytes.
    pub(crate) size: u32,
    pub(crate) thread: u32,
    pub(crate) call: PlainCall,
}

impl Resolved {
    pub(super) const NONE: Resolved = Resolved { time_ns: 0, object: 0, size: 0, thread: 0, call: PlainCall::Malloc };

    /// The call as an [`Event`].
    pub fn event(&self) -> Event {
        let object = ObjectId(self.object);
        let op = match self.call {
            PlainCall::Free => Op::Free { object },
            call => {
                let (size, call) = (self.size.into(), call.alloc());
                Op::Alloc { object, size, align_log2: 0, call, initial_touch: InitialTouch::None }
            }
        };
        Event::new(self.time_ns, ThreadId(self.thread), op)
    }
}

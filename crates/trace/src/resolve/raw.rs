//! Events as a recorder or another program's trace has them: with addresses, not objects.

use crate::event::{Access, AllocCall, InitialTouch, ReallocCall, SiteId};
use crate::memory_policy::MemoryPolicy;

/// What a program did, in its own addresses. 0 is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// An allocating call and the address it returned; 0: it failed.
    Alloc {
        /// Address of the block.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// log2 of the requested alignment in bytes; 0 where the call has none.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
        /// What was written at once, where a recorder knows.
        initial_touch: InitialTouch,
    },
    /// `free(address)`.
    Free {
        /// Address of the block; 0 is allowed.
        address: u64,
    },
    /// `realloc(old, size)` that returned `new`.
    Realloc {
        /// Address of the block; 0: it allocates.
        old: u64,
        /// The address returned; 0: it failed, or freed where `size` is 0.
        new: u64,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
        /// What of a grown tail was written at once, where a recorder knows; of the whole block where `old` is 0.
        initial_touch: InitialTouch,
    },
    /// `malloc_usable_size(address)`; of NULL it is left out.
    UsableSize {
        /// Address of the block.
        address: u64,
    },
    /// An access to a block.
    Touch {
        /// Address of the block's first byte.
        address: u64,
        /// First byte accessed, from there.
        offset: u64,
        /// Number of bytes, above 0.
        bytes: u32,
        /// Read or write.
        access: Access,
    },
    /// The thread begins.
    ThreadStart,
    /// The thread has ended.
    ThreadExit,
    /// The program forked.
    Fork {
        /// Process id of the child.
        child_pid: u32,
    },
    /// A forked child holds the memory no longer, or still where the trace ends.
    ForkEnd {
        /// Process id of the child.
        child_pid: u32,
        /// It still holds the memory.
        outlives: bool,
    },
    /// The program image was replaced.
    Exec,
    /// Events are missing up to here: any block may have died unseen.
    Gap,
    /// A named point in time.
    Mark {
        /// Index of its name.
        name: u32,
    },
    /// The program changed what the kernel does with all of its memory.
    MemoryPolicy {
        /// The change.
        policy: MemoryPolicy,
        /// It was in force when the recording began.
        inherited: bool,
    },
}

impl RawOp {
    /// The address that the call takes back.
    #[inline]
    pub(super) fn freed(&self) -> Option<u64> {
        match *self {
            RawOp::Free { address } if address != 0 => Some(address),
            RawOp::Realloc { old, new, .. } if old != 0 && new != old => Some(old),
            _ => None,
        }
    }

    /// The address that the call gave out, unless it was the caller's already.
    #[inline]
    pub(super) fn allocated(&self) -> Option<u64> {
        match *self {
            RawOp::Alloc { address, .. } if address != 0 => Some(address),
            RawOp::Realloc { old, new, .. } if new != 0 && new != old => Some(new),
            _ => None,
        }
    }
}

/// An event as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// Nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// The thread, by any number that tells it from others (a tid, a slot).
    pub thread: u32,
    /// Where in the program it was done, where known.
    pub site: SiteId,
    /// What it did.
    pub op: RawOp,
}

impl RawEvent {
    /// An event whose call site is not known.
    #[inline]
    pub fn new(time_ns: u64, thread: u32, op: RawOp) -> Self {
        RawEvent { time_ns, thread, site: SiteId::UNKNOWN, op }
    }
}

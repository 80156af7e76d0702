//! Events with addresses instead of objects, as a recorder or another program's trace has them.

use crate::event::{Access, AllocCall, InitialTouch, ReallocCall, SiteId};
use crate::memory_policy::MemoryPolicy;

/// What a program did, with its addresses. 0 is NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// An allocating call and the address it returned; 0 if it failed.
    Alloc {
        /// Address of the block.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// log2 of the requested alignment in bytes; 0 where the call has none.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
        /// The first accesses to the block, where known.
        initial_touch: InitialTouch,
    },
    /// `free(address)`.
    Free {
        /// Address of the block; 0 is allowed.
        address: u64,
    },
    /// `realloc(old, size)` that returned `new`.
    Realloc {
        /// Address of the block; 0 for an allocation.
        old: u64,
        /// The address returned; 0 if the call failed or, with `size` 0, freed the block.
        new: u64,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
        /// The first accesses to the added bytes (if `old` is 0, to the whole block), where known.
        initial_touch: InitialTouch,
    },
    /// `malloc_usable_size(address)`; dropped if the address is NULL.
    UsableSize {
        /// Address of the block.
        address: u64,
    },
    /// An access to a block.
    Touch {
        /// Address of the block's first byte.
        address: u64,
        /// First byte accessed, from the start of the block.
        offset: u64,
        /// Number of bytes, above 0.
        bytes: u32,
        /// Read or write.
        access: Access,
    },
    /// The thread starts.
    ThreadStart,
    /// The thread has ended.
    ThreadExit,
    /// The program forked.
    Fork {
        /// Process id of the child.
        child_pid: u32,
    },
    /// A forked child no longer shares the memory, or still does at the end of the trace.
    ForkEnd {
        /// Process id of the child.
        child_pid: u32,
        /// It still shares the memory at the end of the trace.
        outlives: bool,
    },
    /// The process called exec.
    Exec,
    /// Events are missing before this point: any live block may have been freed.
    Gap,
    /// A named point in time.
    Mark {
        /// Index of its name.
        name: u32,
    },
    /// The program changed a setting that applies to all of its memory.
    MemoryPolicy {
        /// The change.
        policy: MemoryPolicy,
        /// The setting was already in force when the recording began.
        inherited: bool,
    },
}

impl RawOp {
    /// The address that the call frees.
    #[inline]
    pub fn freed(&self) -> Option<u64> {
        match *self {
            RawOp::Free { address } if address != 0 => Some(address),
            RawOp::Realloc { old, new, .. } if old != 0 && new != old => Some(old),
            _ => None,
        }
    }

    /// The address that the call returned, unless the caller already had it.
    #[inline]
    pub fn allocated(&self) -> Option<u64> {
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
    /// The thread: any unique number (a tid, a slot).
    pub thread: u32,
    /// The call site, where known.
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

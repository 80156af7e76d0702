//! The event model: a trace is a sequence of [`Event`]s.
//!
//! Objects have dense ids that are recycled after the free, so every table indexed by [`ObjectId`] is
//! O(peak live objects), never O(trace).

use crate::memory_policy::MemoryPolicy;

pub use hksim_call_sites::SiteId;

/// A thread of the recorded program: dense, from 0, in order of first appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// A live object: dense, recycled after its free. A resized object keeps its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// The function that allocated a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AllocCall {
    /// `malloc(size)`, C++ `operator new`.
    Malloc,
    /// `calloc(n, size)`: the block reads as zeros. `size` of the event is the product.
    Calloc,
    /// `realloc(NULL, size)`: allocates, but is counted as a realloc.
    Realloc,
    /// `reallocarray(NULL, n, size)`.
    Reallocarray,
    /// `posix_memalign(&p, alignment, size)`.
    PosixMemalign,
    /// `aligned_alloc(alignment, size)`.
    AlignedAlloc,
    /// `memalign(alignment, size)`.
    Memalign,
    /// `valloc(size)`: alignment is the page size.
    Valloc,
    /// `pvalloc(size)`: alignment is the page size; `size` is the requested size, not the rounded one.
    Pvalloc,
}

/// Which of the two resizing functions was called on a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReallocCall {
    /// `realloc(p, size)`.
    Realloc,
    /// `reallocarray(p, n, size)`; `size` of the event is the product.
    Reallocarray,
}

impl ReallocCall {
    /// The same function called on NULL, which allocates.
    #[inline]
    pub fn of_null(self) -> AllocCall {
        match self {
            ReallocCall::Realloc => AllocCall::Realloc,
            ReallocCall::Reallocarray => AllocCall::Reallocarray,
        }
    }
}

/// The first accesses to a new block, known at its allocation. For a realloc: the first accesses to the bytes that it
/// added.
///
/// Meaningful only if the trace's touch source is not `assumed`. Recorders that do not watch accesses write
/// `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InitialTouch {
    /// No access (later ones may follow as [`Op::Touch`]).
    None,
    /// The first byte of the block was written. For a realloc: no access.
    FirstByte,
    /// Every byte written once, in ascending order.
    All,
    /// The object was watched: each of its accesses is an [`Op::Touch`].
    Watched,
    /// Every byte read once, none written.
    Read,
    /// Every byte read once, then written once.
    ReadThenWrite,
    /// The block spans two pages and was accessed differently on each. Assigned from profiles while a trace is read;
    /// never stored in a file.
    PerPage(PageTouches),
}

impl InitialTouch {
    /// Every value that a file can contain, in the order of the format's numbers.
    pub const ALL: [InitialTouch; 6] = [
        InitialTouch::None,
        InitialTouch::FirstByte,
        InitialTouch::All,
        InitialTouch::Watched,
        InitialTouch::Read,
        InitialTouch::ReadThenWrite,
    ];

    /// Combines the accesses to the two pages of [`InitialTouch::PerPage`] as if the block were on one page: first
    /// those to the first page, then those to the second. Other values are returned unchanged.
    pub fn whole(self) -> InitialTouch {
        let InitialTouch::PerPage(sides) = self else { return self };
        match (sides.first(), sides.second()) {
            (InitialTouch::None, second) => second,
            (InitialTouch::Read, InitialTouch::All) => InitialTouch::ReadThenWrite,
            (InitialTouch::Read, InitialTouch::ReadThenWrite) => InitialTouch::ReadThenWrite,
            (first, _) => first,
        }
    }
}

// A `repr` would give the payload of `PerPage` a byte of its own, and decoding and simulation each event more work.
const _: () = assert!(size_of::<InitialTouch>() == 1);

/// Initial touches of a block that spans two pages, if they differ. Each name gives the first page, then the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each name states both pages")]
pub enum PageTouches {
    NoneRead,
    NoneWrite,
    NoneReadWrite,
    ReadNone,
    ReadWrite,
    ReadReadWrite,
    WriteNone,
    WriteRead,
    WriteReadWrite,
    ReadWriteNone,
    ReadWriteRead,
    ReadWriteWrite,
}

impl PageTouches {
    /// Every value, in the order of a profile's counts.
    pub const ALL: [PageTouches; 12] = [
        PageTouches::NoneRead,
        PageTouches::NoneWrite,
        PageTouches::NoneReadWrite,
        PageTouches::ReadNone,
        PageTouches::ReadWrite,
        PageTouches::ReadReadWrite,
        PageTouches::WriteNone,
        PageTouches::WriteRead,
        PageTouches::WriteReadWrite,
        PageTouches::ReadWriteNone,
        PageTouches::ReadWriteRead,
        PageTouches::ReadWriteWrite,
    ];

    /// The value for these two initial touches. `None` if they are equal or a profile does not distinguish them.
    pub fn of(first: InitialTouch, second: InitialTouch) -> Option<PageTouches> {
        Self::ALL.into_iter().find(|sides| (sides.first(), sides.second()) == (first, second))
    }

    /// The initial touch of the first page.
    pub fn first(self) -> InitialTouch {
        match self {
            PageTouches::NoneRead | PageTouches::NoneWrite | PageTouches::NoneReadWrite => InitialTouch::None,
            PageTouches::ReadNone | PageTouches::ReadWrite | PageTouches::ReadReadWrite => InitialTouch::Read,
            PageTouches::WriteNone | PageTouches::WriteRead | PageTouches::WriteReadWrite => InitialTouch::All,
            PageTouches::ReadWriteNone | PageTouches::ReadWriteRead | PageTouches::ReadWriteWrite => {
                InitialTouch::ReadThenWrite
            }
        }
    }

    /// The initial touch of the second page.
    pub fn second(self) -> InitialTouch {
        match self {
            PageTouches::ReadNone | PageTouches::WriteNone | PageTouches::ReadWriteNone => InitialTouch::None,
            PageTouches::NoneRead | PageTouches::WriteRead | PageTouches::ReadWriteRead => InitialTouch::Read,
            PageTouches::NoneWrite | PageTouches::ReadWrite | PageTouches::ReadWriteWrite => InitialTouch::All,
            PageTouches::NoneReadWrite | PageTouches::ReadReadWrite | PageTouches::WriteReadWrite => {
                InitialTouch::ReadThenWrite
            }
        }
    }
}

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// What happened. Sizes are requested sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new object.
    Alloc {
        /// Its id, not live before this event.
        object: ObjectId,
        /// Requested bytes (0 is possible).
        size: u64,
        /// log2 of the requested alignment in bytes; 0 if the call specifies none.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
        /// The first accesses to the block.
        initial_touch: InitialTouch,
    },
    /// A live object was resized. It keeps its id; its address may change.
    Realloc {
        /// The object, live before and after.
        object: ObjectId,
        /// New requested bytes, above 0.
        size: u64,
        /// The function called.
        call: ReallocCall,
        /// The first accesses to the bytes that were added.
        initial_touch: InitialTouch,
    },
    /// `realloc(p, 0)` that freed its object. The id is no longer live.
    ReallocFree {
        /// The object.
        object: ObjectId,
        /// The function called.
        call: ReallocCall,
    },
    /// `realloc(p, size)` of a pointer whose allocation is not in the trace. Equivalent to an unknown free and a new
    /// object.
    ReallocUnknown {
        /// The id of the result.
        object: ObjectId,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
    },
    /// `free(p)` of a live object. The id is no longer live.
    Free {
        /// The object.
        object: ObjectId,
    },
    /// `free(NULL)`.
    FreeNull,
    /// `free(p)` of a pointer whose allocation is not in the trace. Counted, but not replayed.
    FreeUnknown,
    /// `malloc_usable_size(p)` of a live object.
    UsableSize {
        /// The object.
        object: ObjectId,
    },
    /// An allocating call that failed.
    AllocFailed {
        /// Requested bytes; `u64::MAX` if the product overflowed.
        size: u64,
        /// log2 of the requested alignment.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
    },
    /// A resizing call on a live object that failed. The object is unchanged.
    ReallocFailed {
        /// The object, unchanged.
        object: ObjectId,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
    },
    /// The event's thread starts (optional: a thread also starts with its first event).
    ThreadStart,
    /// The event's thread has ended.
    ThreadExit,
    /// The program forked; the child has its own trace.
    Fork {
        /// Process id of the child.
        child_pid: u32,
    },
    /// A forked child no longer shares its parent's memory: the child and all its descendants have exited or called
    /// exec.
    ForkEnd {
        /// Process id of the child, as in the preceding [`Op::Fork`].
        child_pid: u32,
        /// Whether the child still shares the memory when the trace ends. This event is then at the end of the trace.
        outlives: bool,
    },
    /// The process called exec; the trace ends here.
    Exec,
    /// A named point in time.
    Mark {
        /// Index into the mark names of the footer.
        name: u32,
    },
    /// The program accessed bytes of a live object.
    Touch {
        /// The object.
        object: ObjectId,
        /// First byte, from the start of the object.
        offset: u64,
        /// Number of bytes, above 0.
        bytes: u32,
        /// Read or write.
        access: Access,
    },
    /// The program changed a setting that applies to all of its memory.
    MemoryPolicy {
        /// The change.
        policy: MemoryPolicy,
        /// Whether the setting was already in force when the trace began. Such an event is not a call.
        inherited: bool,
    },
}

impl Op {
    /// Exclusive upper limit of block sizes: user address space ends at 2^47 on x86-64 with 4-level page tables. So
    /// sums of sizes and offsets cannot overflow 64 bits.
    pub const BLOCK_BYTES_END: u64 = 1 << 47;

    /// Whether the event is a call that requests memory. Only these events have a size and can have a call site.
    #[inline]
    pub fn asks_for_memory(&self) -> bool {
        matches!(
            self,
            Op::Alloc { .. }
                | Op::Realloc { .. }
                | Op::ReallocUnknown { .. }
                | Op::AllocFailed { .. }
                | Op::ReallocFailed { .. }
        )
    }

    /// Whether the event is a call that an allocator performs. Times are per such call. Others are only counted or do
    /// something else.
    pub fn calls_allocator(&self) -> bool {
        match self {
            Op::Alloc { .. }
            | Op::Realloc { .. }
            | Op::ReallocFree { .. }
            | Op::ReallocUnknown { .. }
            | Op::Free { .. }
            | Op::UsableSize { .. } => true,
            Op::FreeNull
            | Op::FreeUnknown
            | Op::AllocFailed { .. }
            | Op::ReallocFailed { .. }
            | Op::ThreadStart
            | Op::ThreadExit
            | Op::Fork { .. }
            | Op::ForkEnd { .. }
            | Op::Exec
            | Op::Mark { .. }
            | Op::Touch { .. }
            | Op::MemoryPolicy { .. } => false,
        }
    }

    /// The event's object, if it has one.
    #[inline]
    pub fn object(&self) -> Option<ObjectId> {
        match *self {
            Op::Alloc { object, .. }
            | Op::Realloc { object, .. }
            | Op::ReallocFree { object, .. }
            | Op::ReallocUnknown { object, .. }
            | Op::Free { object }
            | Op::UsableSize { object }
            | Op::ReallocFailed { object, .. }
            | Op::Touch { object, .. } => Some(object),
            Op::FreeNull
            | Op::FreeUnknown
            | Op::AllocFailed { .. }
            | Op::ThreadStart
            | Op::ThreadExit
            | Op::Fork { .. }
            | Op::ForkEnd { .. }
            | Op::Exec
            | Op::Mark { .. }
            | Op::MemoryPolicy { .. } => None,
        }
    }

    /// The same event with another object; unchanged if it has none.
    #[inline]
    pub fn with_object(mut self, other: ObjectId) -> Op {
        match &mut self {
            Op::Alloc { object, .. }
            | Op::Realloc { object, .. }
            | Op::ReallocFree { object, .. }
            | Op::ReallocUnknown { object, .. }
            | Op::Free { object }
            | Op::UsableSize { object }
            | Op::ReallocFailed { object, .. }
            | Op::Touch { object, .. } => *object = other,
            _ => (),
        }
        self
    }

    /// Whether the event allocates its object.
    #[inline]
    pub fn creates_object(&self) -> bool {
        matches!(self, Op::Alloc { .. } | Op::ReallocUnknown { .. })
    }

    /// Whether the event frees its object.
    #[inline]
    pub fn frees_object(&self) -> bool {
        matches!(self, Op::Free { .. } | Op::ReallocFree { .. })
    }

    /// Describes the value that is out of range; `None` for a valid event.
    #[inline(always)]
    pub fn flaw(&self) -> Option<&'static str> {
        let align = match *self {
            Op::Alloc { align_log2, .. } | Op::AllocFailed { align_log2, .. } => align_log2,
            _ => 0,
        };
        match *self {
            _ if align > 63 => Some("the alignment is above 2^63"),
            Op::Alloc { size, .. } | Op::Realloc { size, .. } | Op::ReallocUnknown { size, .. }
                if size >= Self::BLOCK_BYTES_END =>
            {
                Some("the block is larger than the address space")
            }
            Op::Realloc { size: 0, .. } => Some("a resize to 0 bytes (record it as a free)"),
            Op::Touch { bytes: 0, .. } => Some("an access of 0 bytes"),
            Op::Touch { offset, .. } if offset >= Self::BLOCK_BYTES_END => Some("an access outside the address space"),
            _ => None,
        }
    }
}

/// One event of a trace. A replay performs the events in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the start of the trace; never decreases within a trace.
    pub time_ns: u64,
    /// The thread that made the call or access.
    pub thread: ThreadId,
    /// The call site; only calls that request memory have one ([`Op::asks_for_memory`]).
    pub site: SiteId,
    /// What happened.
    pub op: Op,
}

impl Event {
    /// Describes the value that is out of range; `None` for a valid event.
    #[inline(always)]
    pub fn flaw(&self) -> Option<&'static str> {
        match self.site {
            SiteId::UNKNOWN => self.op.flaw(),
            _ if self.op.asks_for_memory() => self.op.flaw(),
            _ => Some("a call site on an event that does not request memory"),
        }
    }

    /// An event whose call site is not known.
    #[inline]
    pub fn new(time_ns: u64, thread: ThreadId, op: Op) -> Self {
        Event { time_ns, thread, site: SiteId::UNKNOWN, op }
    }
}

//! The event model: what a trace says happened, one [`Event`] at a time.
//!
//! Objects have dense ids that are recycled after the free, so every table indexed by [`ObjectId`] is
//! O(peak live objects), never O(trace).

use crate::memory_policy::MemoryPolicy;

/// A thread of the recorded program: dense, from 0, in order of first appearance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// A live object: dense, recycled after its free. A resized object keeps its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// A call site: 0 is "not known", any other value `n` is stack `n - 1` of [`crate::sites::Sites`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u32);

impl SiteId {
    /// No call site was recorded.
    pub const UNKNOWN: SiteId = SiteId(0);
}

/// The function that asked for a new block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AllocCall {
    /// `malloc(size)`, C++ `operator new`.
    Malloc,
    /// `calloc(n, size)`: the block reads as zeros. `size` of the event is the product.
    Calloc,
    /// `realloc(NULL, size)`: allocates, and stays a realloc in the counts.
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
    /// `pvalloc(size)`: alignment is the page size; `size` is as asked, not rounded.
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

/// What the program is known to have touched right after the call that made (or grew) a block; of a realloc, of the grown
/// tail. Meaningful only where the trace's touch knowledge is not `assumed`; recorders that watch nothing write `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum InitialTouch {
    /// Nothing (further writes may follow as [`Op::Touch`]).
    None,
    /// The first byte of the block (of a realloc: nothing).
    FirstByte,
    /// Every byte written once, in ascending order.
    All,
    /// Not told here: this object was watched, and each of its touches stands in an [`Op::Touch`].
    Watched,
    /// Every byte read once, and nothing written at once.
    Read,
    /// Every byte read once, then written once.
    ReadThenWrite,
    /// What lies on the first of two pages otherwise than what lies on the second. Profiles lend it while a trace is read; no file
    /// has it.
    PerPage(PageTouches),
}

impl InitialTouch {
    /// Every value that a file may have, in the order of the format's numbers.
    pub const ALL: [InitialTouch; 6] = [
        InitialTouch::None,
        InitialTouch::FirstByte,
        InitialTouch::All,
        InitialTouch::Watched,
        InitialTouch::Read,
        InitialTouch::ReadThenWrite,
    ];

    /// What a block was touched like that lies on one page, if it was touched so on two: first on the first, then on the second.
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

/// Births of the two sides of a block that lies across two pages, where they differ: of the first page, then of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each name says its two sides")]
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

    /// The sides of these births; `None` if they are equal, or none that a profile knows.
    pub fn of(first: InitialTouch, second: InitialTouch) -> Option<PageTouches> {
        Self::ALL.into_iter().find(|sides| (sides.first(), sides.second()) == (first, second))
    }

    /// What is done on the first page.
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

    /// What is done on the second page.
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

/// What happened. Sizes in bytes, as the program asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new object.
    Alloc {
        /// Its id: not live before this event.
        object: ObjectId,
        /// Requested bytes (0 is possible).
        size: u64,
        /// log2 of the requested alignment in bytes; 0 where the call has none.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
        /// What was written at once.
        initial_touch: InitialTouch,
    },
    /// A live object resized; the id stays, the address may change.
    Realloc {
        /// The object, live before and after.
        object: ObjectId,
        /// New requested bytes, above 0.
        size: u64,
        /// The function called.
        call: ReallocCall,
        /// Whether the grown tail was written at once.
        initial_touch: InitialTouch,
    },
    /// `realloc(p, 0)` that freed its object. The id is dead afterwards.
    ReallocFree {
        /// The object.
        object: ObjectId,
        /// The function called.
        call: ReallocCall,
    },
    /// `realloc(p, size)` of a pointer this trace never saw allocated: an unknown free and a new object.
    ReallocUnknown {
        /// The id of the result.
        object: ObjectId,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
    },
    /// `free(p)` of a live object. The id is dead afterwards.
    Free {
        /// The object.
        object: ObjectId,
    },
    /// `free(NULL)`.
    FreeNull,
    /// `free(p)` of a pointer this trace never saw allocated: counted, and replayed as nothing.
    FreeUnknown,
    /// `malloc_usable_size(p)` of a live object.
    UsableSize {
        /// The object.
        object: ObjectId,
    },
    /// An allocating call that returned no memory. An existing object stays as it was.
    AllocFailed {
        /// Requested bytes (`u64::MAX` where the product overflowed).
        size: u64,
        /// log2 of the requested alignment.
        align_log2: u8,
        /// The function called.
        call: AllocCall,
    },
    /// A resizing call on a live object that returned no memory; the object stays.
    ReallocFailed {
        /// The object, unchanged.
        object: ObjectId,
        /// Requested bytes.
        size: u64,
        /// The function called.
        call: ReallocCall,
    },
    /// The event's thread begins (optional: a thread also begins with its first event).
    ThreadStart,
    /// The event's thread has ended.
    ThreadExit,
    /// The program forked; the child has a trace of its own.
    Fork {
        /// Process id of the child.
        child_pid: u32,
    },
    /// A forked child holds its parent's memory no longer: it, and every process that it forked, has ended or executed another
    /// program.
    ForkEnd {
        /// Process id of the child, as in the [`Op::Fork`] before.
        child_pid: u32,
        /// It still holds the memory where the trace ends; the event stands at that end.
        outlives: bool,
    },
    /// The program image was replaced; the trace ends with this image.
    Exec,
    /// A named point in time.
    Mark {
        /// Index into the names of the trace's footer.
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
    /// The program changed what the kernel does with all of its memory.
    MemoryPolicy {
        /// The change.
        policy: MemoryPolicy,
        /// It was in force when the trace began, and this is its first event: not a call.
        inherited: bool,
    },
}

impl Op {
    /// Sizes of blocks that exist are below this: user address space ends at 2^47 on x86-64 (4-level
    /// page tables), so that sums of sizes and offsets cannot overflow 64 bits.
    pub const BLOCK_BYTES_END: u64 = 1 << 47;

    /// Whether the call asks for memory: such events have a size, and may have a call site.
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

    /// The object that the event is about.
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

    /// The same event about another object; without one, the same event.
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

    /// Whether the event makes its object.
    #[inline]
    pub fn creates_object(&self) -> bool {
        matches!(self, Op::Alloc { .. } | Op::ReallocUnknown { .. })
    }

    /// Whether the event ends its object.
    #[inline]
    pub fn frees_object(&self) -> bool {
        matches!(self, Op::Free { .. } | Op::ReallocFree { .. })
    }

    /// What is out of range, in words; `None` for an event that a program can produce.
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
            Op::Realloc { size: 0, .. } => Some("a resize to 0 bytes (that is a free)"),
            Op::Touch { bytes: 0, .. } => Some("an access of 0 bytes"),
            Op::Touch { offset, .. } if offset >= Self::BLOCK_BYTES_END => Some("an access outside the address space"),
            _ => None,
        }
    }
}

/// One thing that happened, in the order in which a replay performs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the start of the trace; never decreases within a trace.
    pub time_ns: u64,
    /// The thread that did it.
    pub thread: ThreadId,
    /// Where in the program it was done; only calls that ask for memory have one ([`Op::asks_for_memory`]).
    pub site: SiteId,
    /// What it did.
    pub op: Op,
}

impl Event {
    /// What is out of range, in words; `None` for an event that a program can produce.
    #[inline(always)]
    pub fn flaw(&self) -> Option<&'static str> {
        match self.site {
            SiteId::UNKNOWN => self.op.flaw(),
            _ if self.op.asks_for_memory() => self.op.flaw(),
            _ => Some("a call site on an event that asks for no memory"),
        }
    }

    /// An event whose call site is not known.
    #[inline]
    pub fn new(time_ns: u64, thread: ThreadId, op: Op) -> Self {
        Event { time_ns, thread, site: SiteId::UNKNOWN, op }
    }
}

//! Events of a memory recording.

use std::ops::Range;

use hksim_call_sites::SiteId;
use serde::{Deserialize, Serialize};

use crate::at_start::{MappingAtStart, PagesAtStart};

/// Index of a name of the recording, in order of definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, in nanoseconds since the start of the recording.
    pub time_ns: u64,
    /// The thread, numbered from 0 in order of its first event.
    pub thread: u32,
    /// What happened.
    pub op: Op,
    /// The call site, of calls that make mappings or ask for huge pages; unknown if it was not recorded.
    pub site: SiteId,
}

/// What a page fault was raised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchKind {
    /// A read, or an instruction fetch.
    Read,
    /// A write.
    Write,
    /// The recorder could not see which.
    Unknown,
}

/// What a mapping maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingKind {
    /// Private anonymous memory.
    Anonymous,
    /// A private mapping of a file. Written pages become anonymous.
    PrivateFile,
    /// A shared mapping of a file, shared anonymous memory, or a System V segment.
    Shared,
    /// A stack that grows when it is touched below its start: the main thread's, and `MAP_GROWSDOWN`.
    GrowingStack,
    /// Private memory of the hugetlb pool with pages of another size than 2 MiB.
    OtherHugetlb,
    /// A mapping that the kernel made by itself: vdso, vvar, shadow stacks, asynchronous I/O rings.
    Special,
    /// Private anonymous memory of a replay's own, mapped with `MAP_EXECUTABLE`, which the kernel ignores.
    Harness,
}

impl MappingKind {
    /// Every kind, in the order of the codes in a file.
    pub const ALL: [Self; 7] = [
        Self::Anonymous,
        Self::PrivateFile,
        Self::Shared,
        Self::GrowingStack,
        Self::OtherHugetlb,
        Self::Special,
        Self::Harness,
    ];

    /// The kind in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::PrivateFile => "private file",
            Self::Shared => "shared",
            Self::GrowingStack => "growing stack",
            Self::OtherHugetlb => "hugetlb of other sizes",
            Self::Special => "special",
            Self::Harness => "replay's own",
        }
    }
}

/// What created a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A call of mmap.
    Mmap,
    /// A call of brk.
    Brk,
    /// The kernel, at exec: segments of the program and of its loader.
    Exec,
    /// The kernel, at another time.
    Kernel,
}

impl Origin {
    /// Every origin, in the order of the codes in a file.
    pub const ALL: [Self; 4] = [Self::Mmap, Self::Brk, Self::Exec, Self::Kernel];
}

/// A new mapping. It replaces what was mapped in its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOp {
    /// The pages.
    pub pages: Range<u64>,
    /// The address that the program asked for, as a page; 0 if it left the choice to the kernel.
    pub hint_page: u64,
    /// What is mapped.
    pub kind: MappingKind,
    /// What created it.
    pub origin: Origin,
    /// `PROT_*` bits.
    pub protection: u32,
    /// `MAP_*` flags of the call; 0 for other origins.
    pub flags: u32,
    /// Path of the file, or another name of the kernel; `None` for anonymous memory.
    pub name: Option<NameId>,
}

/// What happened. Calls that changed nothing are not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A page fault.
    Touch {
        /// The page.
        page: u64,
        /// The access.
        kind: TouchKind,
    },
    /// A new mapping.
    Map(Box<MapOp>),
    /// munmap, or brk below the current end.
    Unmap(Range<u64>),
    /// mremap.
    Remap {
        /// The range before the call.
        old: Range<u64>,
        /// The range after the call.
        new: Range<u64>,
        /// `MREMAP_*` flags.
        flags: u32,
    },
    /// mprotect and pkey_mprotect.
    Protect {
        /// The range.
        pages: Range<u64>,
        /// `PROT_*` bits.
        protection: u32,
        /// 0, or the error: the part before the first hole was changed.
        errno: u32,
    },
    /// madvise.
    Advise {
        /// The range.
        pages: Range<u64>,
        /// `MADV_*`.
        advice: u32,
        /// 0, or the error: some mappings of the range may have been changed.
        errno: u32,
    },
    /// mlock and mlock2.
    Lock {
        /// The range.
        pages: Range<u64>,
        /// `MLOCK_*` flags.
        flags: u32,
        /// 0, or the error.
        errno: u32,
    },
    /// munlock.
    Unlock(Range<u64>),
    /// mlockall, with its `MCL_*` flags.
    LockAll(u32),
    /// munlockall.
    UnlockAll,
    /// `prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME)`. The name is not recorded: the number is the address of the name in
    /// the program, 0 to remove it.
    NameMapping {
        /// The range.
        pages: Range<u64>,
        /// The address of the name.
        name_address: u64,
    },
    /// `prctl(PR_SET_THP_DISABLE)` by the program.
    DisableThp {
        /// The second argument: 0 to allow huge pages again.
        value: u32,
        /// The third argument: `PR_THP_DISABLE_EXCEPT_ADVISED`.
        flags: u32,
    },
    /// A fork: from here on the child is an address space of its own.
    Fork {
        /// The child's process id.
        child_pid: u32,
    },
    /// A forked child's address space ended: the child exited or executed a program.
    ChildEnded {
        /// The child's process id.
        child_pid: u32,
    },
    /// The recorder lost events here, on one processor; their processes are unknown.
    Lost {
        /// Number of lost events.
        events: u64,
    },
    /// A mapping that was there when the recording began in the middle of the process.
    MappingAtStart(Box<MappingAtStart>),
    /// Pages that were not absent when the recording began in the middle of the process. Their mapping precedes them.
    PagesAtStart(PagesAtStart),
}

impl Op {
    /// The mapping that the operation tells: new, or there at the start.
    pub fn mapping(&self) -> Option<&MapOp> {
        match self {
            Self::Map(map) => Some(map),
            Self::MappingAtStart(start) => Some(&start.map),
            _ => None,
        }
    }

    /// [`Op::mapping`], to change it.
    pub fn mapping_mut(&mut self) -> Option<&mut MapOp> {
        match self {
            Self::Map(map) => Some(map),
            Self::MappingAtStart(start) => Some(&mut start.map),
            _ => None,
        }
    }

    /// Whether it tells what the process had when the recording began, and not what happened.
    pub fn is_at_start(&self) -> bool {
        matches!(self, Self::MappingAtStart(_) | Self::PagesAtStart(_))
    }
}

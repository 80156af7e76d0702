//! An event as a table row with all its fields: the columns of CSV and Parquet exports.

use crate::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ReallocCall, SiteId};
use crate::memory_policy::MemoryPolicy;

/// Allocating functions and their names.
const ALLOC_CALLS: [(AllocCall, &str); 9] = [
    (AllocCall::Malloc, "malloc"),
    (AllocCall::Calloc, "calloc"),
    (AllocCall::Realloc, "realloc"),
    (AllocCall::Reallocarray, "reallocarray"),
    (AllocCall::PosixMemalign, "posix_memalign"),
    (AllocCall::AlignedAlloc, "aligned_alloc"),
    (AllocCall::Memalign, "memalign"),
    (AllocCall::Valloc, "valloc"),
    (AllocCall::Pvalloc, "pvalloc"),
];
const REALLOC_CALLS: [(ReallocCall, &str); 2] =
    [(ReallocCall::Realloc, "realloc"), (ReallocCall::Reallocarray, "reallocarray")];
const INITIAL_TOUCHES: [(InitialTouch, &str); 6] = [
    (InitialTouch::None, "none"),
    (InitialTouch::FirstByte, "first-byte"),
    (InitialTouch::All, "all"),
    (InitialTouch::Watched, "watched"),
    (InitialTouch::Read, "read"),
    (InitialTouch::ReadThenWrite, "read-then-write"),
];
const ACCESSES: [(Access, &str); 2] = [(Access::Read, "read"), (Access::Write, "write")];
/// Calls that change a memory policy, by kind number ([`MemoryPolicy::numbers`]).
const POLICY_CALLS: [(u8, &str); MemoryPolicy::KINDS] = [(0, "thp-disable"), (1, "mlockall"), (2, "personality")];

/// An event as words and numbers. Fields that the event does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row<'a> {
    /// The kind of event: `alloc`, `free`, ...; docs/reference/export.md lists them.
    pub op: &'a str,
    /// The object.
    pub object: Option<u64>,
    /// Requested bytes.
    pub size: Option<u64>,
    /// log2 of the alignment in bytes.
    pub align_log2: Option<u64>,
    /// The C function called. For a memory policy: `thp-disable`, `mlockall` or `personality`.
    pub call: Option<&'a str>,
    /// The initial touch (column `birth`): `none`, `first-byte`, `all`, `watched`, `read`, `read-then-write`.
    pub initial_touch: Option<&'a str>,
    /// First byte accessed, from the start of the object.
    pub offset: Option<u64>,
    /// Bytes accessed.
    pub bytes: Option<u64>,
    /// `read` or `write`.
    pub access: Option<&'a str>,
    /// Process id of a forked child, index of a mark's name, or value of a memory policy.
    pub number: Option<u64>,
    /// The call site, for calls that request memory; 0 if unknown.
    pub site: Option<u64>,
}

impl Row<'static> {
    /// The row of an event.
    pub fn of(event: &Event) -> Row<'static> {
        let site = event.op.asks_for_memory().then_some(u64::from(event.site.0));
        let row = Row { op: op_name(&event.op), site, ..Row::default() };
        let id = |object: ObjectId| Some(u64::from(object.0));
        match event.op {
            Op::Alloc { object, size, align_log2, call, initial_touch } => Row {
                object: id(object),
                size: Some(size),
                align_log2: Some(u64::from(align_log2)),
                call: Some(name(&ALLOC_CALLS, call)),
                initial_touch: Some(name(&INITIAL_TOUCHES, initial_touch.whole())),
                ..row
            },
            Op::Realloc { object, size, call, initial_touch } => Row {
                object: id(object),
                size: Some(size),
                call: Some(name(&REALLOC_CALLS, call)),
                initial_touch: Some(name(&INITIAL_TOUCHES, initial_touch.whole())),
                ..row
            },
            Op::ReallocFree { object, call } => {
                Row { object: id(object), call: Some(name(&REALLOC_CALLS, call)), ..row }
            }
            Op::ReallocUnknown { object, size, call } | Op::ReallocFailed { object, size, call } => {
                Row { object: id(object), size: Some(size), call: Some(name(&REALLOC_CALLS, call)), ..row }
            }
            Op::Free { object } | Op::UsableSize { object } => Row { object: id(object), ..row },
            Op::AllocFailed { size, align_log2, call } => Row {
                size: Some(size),
                align_log2: Some(u64::from(align_log2)),
                call: Some(name(&ALLOC_CALLS, call)),
                ..row
            },
            Op::Fork { child_pid: number } | Op::ForkEnd { child_pid: number, .. } | Op::Mark { name: number } => {
                Row { number: Some(u64::from(number)), ..row }
            }
            Op::Touch { object, offset, bytes, access } => Row {
                object: id(object),
                offset: Some(offset),
                bytes: Some(u64::from(bytes)),
                access: Some(name(&ACCESSES, access)),
                ..row
            },
            Op::MemoryPolicy { policy, .. } => {
                let (kind, value) = policy.numbers();
                Row { call: Some(name(&POLICY_CALLS, kind)), number: Some(u64::from(value)), ..row }
            }
            Op::FreeNull | Op::FreeUnknown | Op::ThreadStart | Op::ThreadExit | Op::Exec => row,
        }
    }
}

impl Row<'_> {
    /// The event of a row; `object` is the id of its object. Empty fields have defaults: call `malloc` or `realloc`, no
    /// alignment, no initial touch, access `write`.
    ///
    /// # Errors
    /// A required field is missing, out of range or an unknown word.
    pub fn op(&self, object: ObjectId) -> Result<Op, String> {
        let size = || self.size.ok_or_else(|| self.missing("size"));
        let align_log2 = || narrow(self.align_log2.unwrap_or(0), "align_log2");
        let alloc_call = || self.word(&ALLOC_CALLS, self.call.unwrap_or("malloc"), "call");
        let call = || self.word(&REALLOC_CALLS, self.call.unwrap_or("realloc"), "call");
        let initial_touch = || self.word(&INITIAL_TOUCHES, self.initial_touch.unwrap_or("none"), "birth");
        let number = || narrow(self.number.ok_or_else(|| self.missing("number"))?, "number");
        Ok(match self.op {
            "alloc" => {
                let (size, align_log2) = (size()?, align_log2()?);
                Op::Alloc { object, size, align_log2, call: alloc_call()?, initial_touch: initial_touch()? }
            }
            "realloc" => Op::Realloc { object, size: size()?, call: call()?, initial_touch: initial_touch()? },
            "realloc-free" => Op::ReallocFree { object, call: call()? },
            "realloc-unknown" => Op::ReallocUnknown { object, size: size()?, call: call()? },
            "free" => Op::Free { object },
            "free-null" => Op::FreeNull,
            "free-unknown" => Op::FreeUnknown,
            "usable-size" => Op::UsableSize { object },
            "alloc-failed" => Op::AllocFailed { size: size()?, align_log2: align_log2()?, call: alloc_call()? },
            "realloc-failed" => Op::ReallocFailed { object, size: size()?, call: call()? },
            "thread-start" => Op::ThreadStart,
            "thread-exit" => Op::ThreadExit,
            "fork" => Op::Fork { child_pid: number()? },
            "fork-end" => Op::ForkEnd { child_pid: number()?, outlives: false },
            "fork-outlives" => Op::ForkEnd { child_pid: number()?, outlives: true },
            "exec" => Op::Exec,
            "mark" => Op::Mark { name: number()? },
            "touch" => Op::Touch {
                object,
                offset: self.offset.ok_or_else(|| self.missing("offset"))?,
                bytes: narrow(self.bytes.ok_or_else(|| self.missing("bytes"))?, "bytes")?,
                access: self.word(&ACCESSES, self.access.unwrap_or("write"), "access")?,
            },
            "memory-policy" => Op::MemoryPolicy { policy: self.policy(number()?)?, inherited: false },
            "memory-policy-inherited" => Op::MemoryPolicy { policy: self.policy(number()?)?, inherited: true },
            other => return Err(format!("`{other}` is not an event; the most common are alloc, free and realloc")),
        })
    }

    /// The call site; unknown if the column is empty.
    ///
    /// # Errors
    /// The number is out of range.
    pub fn site(&self) -> Result<SiteId, String> {
        narrow(self.site.unwrap_or_default(), "site").map(SiteId)
    }

    /// What the event does with its object.
    pub fn object_use(&self) -> ObjectUse {
        match self.op {
            "alloc" | "realloc-unknown" => ObjectUse::Allocated,
            "free" | "realloc-free" => ObjectUse::Freed,
            "realloc" | "realloc-failed" | "usable-size" | "touch" => ObjectUse::Used,
            _ => ObjectUse::None,
        }
    }

    fn policy(&self, value: u32) -> Result<MemoryPolicy, String> {
        let call = self.call.ok_or_else(|| self.missing("call"))?;
        let kind = self.word(&POLICY_CALLS, call, "call")?;
        let unknown = || format!("{value} is not a value of {call}");
        MemoryPolicy::of_numbers(kind, value).ok_or_else(unknown)
    }

    fn word<T: Copy>(&self, words: &[(T, &str)], word: &str, column: &str) -> Result<T, String> {
        let found = words.iter().find(|(_, name)| *name == word).map(|(value, _)| *value);
        found.ok_or_else(|| format!("`{word}` is not a {column} of `{}`", self.op))
    }

    fn missing(&self, column: &str) -> String {
        format!("`{}` has no {column}", self.op)
    }
}

/// What an event does with its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectUse {
    /// The event has no object.
    None,
    /// The event allocates it.
    Allocated,
    /// The object is live before and after.
    Used,
    /// The event frees it.
    Freed,
}

/// The name of an event's kind.
pub fn op_name(op: &Op) -> &'static str {
    match op {
        Op::Alloc { .. } => "alloc",
        Op::Realloc { .. } => "realloc",
        Op::ReallocFree { .. } => "realloc-free",
        Op::ReallocUnknown { .. } => "realloc-unknown",
        Op::Free { .. } => "free",
        Op::FreeNull => "free-null",
        Op::FreeUnknown => "free-unknown",
        Op::UsableSize { .. } => "usable-size",
        Op::AllocFailed { .. } => "alloc-failed",
        Op::ReallocFailed { .. } => "realloc-failed",
        Op::ThreadStart => "thread-start",
        Op::ThreadExit => "thread-exit",
        Op::Fork { .. } => "fork",
        Op::ForkEnd { outlives: false, .. } => "fork-end",
        Op::ForkEnd { outlives: true, .. } => "fork-outlives",
        Op::Exec => "exec",
        Op::Mark { .. } => "mark",
        Op::Touch { .. } => "touch",
        Op::MemoryPolicy { inherited: false, .. } => "memory-policy",
        Op::MemoryPolicy { inherited: true, .. } => "memory-policy-inherited",
    }
}

fn name<T: PartialEq>(words: &[(T, &'static str)], value: T) -> &'static str {
    words.iter().find(|(known, _)| *known == value).map_or("", |(_, name)| name)
}

fn narrow<T: TryFrom<u64>>(value: u64, column: &str) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("{column} {value} is too large"))
}

//! What system calls do to mappings and pages.

use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_replay::explained::CallRecord;

/// The effect of a call that succeeded. Addresses are those of whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None on what is mapped or present.
    Nothing,
    /// A new mapping, in place of what was there.
    Mapped(Range<u64>),
    /// Nothing is mapped there any more.
    Unmapped(Range<u64>),
    /// A mapping has another size, another place, or both.
    Moved {
        /// Where it was.
        from: Range<u64>,
        /// Where it is.
        to: Range<u64>,
    },
    /// Pages were given up.
    Purged {
        /// Which.
        range: Range<u64>,
        /// By which advice.
        advice: i32,
    },
    /// Pages were made present.
    Populated(Range<u64>),
    /// The heap of brk has grown.
    HeapGrown(Range<u64>),
    /// The heap of brk has shrunk.
    HeapShrunk(Range<u64>),
}

impl Effect {
    /// The range that may have been populated.
    pub fn populated(&self) -> Range<u64> {
        match self {
            Effect::Mapped(range) | Effect::Populated(range) | Effect::HeapGrown(range) => range.clone(),
            Effect::Moved { to, .. } => to.clone(),
            Effect::Nothing | Effect::Unmapped(_) | Effect::Purged { .. } | Effect::HeapShrunk(_) => 0..0,
        }
    }
}

/// The effect of a call. `heap_end` is the end of the heap of brk before it.
pub fn effect(call: &CallRecord, heap_end: u64) -> Effect {
    let [first, second, third, fourth, _] = call.arguments;
    let whole = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES);
    let range = |start: u64, bytes: u64| start..start.saturating_add(whole(bytes));
    if call.result < 0 {
        return Effect::Nothing;
    }
    let result = call.result as u64;
    match call.number {
        libc::SYS_mmap => Effect::Mapped(range(result, second)),
        libc::SYS_munmap => Effect::Unmapped(range(first, second)),
        libc::SYS_mremap => {
            // The old mapping stays, without its pages.
            let keeps = fourth as libc::c_int & libc::MREMAP_DONTUNMAP != 0;
            match keeps {
                true => Effect::Mapped(range(result, third)),
                false => Effect::Moved { from: range(first, second), to: range(result, third) },
            }
        }
        libc::SYS_madvise => match third as libc::c_int {
            advice @ (libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_DONTNEED_LOCKED) => {
                Effect::Purged { range: range(first, second), advice }
            }
            libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => Effect::Populated(range(first, second)),
            _ => Effect::Nothing,
        },
        libc::SYS_mlock | libc::SYS_mlock2 => Effect::Populated(range(first, second)),
        libc::SYS_brk => {
            let (old, new) = (whole(heap_end), whole(result));
            match new.cmp(&old) {
                std::cmp::Ordering::Greater => Effect::HeapGrown(old..new),
                std::cmp::Ordering::Less => Effect::HeapShrunk(new..old),
                std::cmp::Ordering::Equal => Effect::Nothing,
            }
        }
        _ => Effect::Nothing,
    }
}

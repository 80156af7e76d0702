//! Repeats the program's memory-policy calls.

use std::io;

use hksim_trace::memory_policy::{MemoryPolicy, ThpDisable};

use crate::error::ChildError;

/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Applies the change to this process.
pub(crate) fn apply_memory_policy(change: MemoryPolicy) -> Result<(), ChildError> {
    let none: libc::c_ulong = 0;
    let (disable, flags): (libc::c_ulong, _) = match change {
        MemoryPolicy::ThpDisable(ThpDisable::Off) => (0, none),
        MemoryPolicy::ThpDisable(ThpDisable::All) => (1, none),
        MemoryPolicy::ThpDisable(ThpDisable::ExceptAdvised) => (1, EXCEPT_ADVISED),
        // Only the heap is locked, not the harness, so the allocator does it.
        MemoryPolicy::LockAll(_) | MemoryPolicy::Personality(_) => return Ok(()),
    };
    // SAFETY: touches no memory.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, none, none) };
    let refused = ChildError::system("repeat the program's memory-policy call (skip it with --memory-policy ignored)");
    if done == 0 { Ok(()) } else { Err(refused(io::Error::last_os_error())) }
}

/// Says that memory which the program locked is not locked in the replay.
pub(crate) fn not_locked(why: &str) -> String {
    format!("the program's memory cannot be locked here: {why}; raise `ulimit -l`, or use --memory-policy ignored")
}

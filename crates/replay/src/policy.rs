//! The program's memory policies, asked of the kernel again.

use std::io;

use hksim_trace::memory_policy::{MemoryPolicy, ThpDisable};

use crate::error::ChildError;

/// `PR_THP_DISABLE_EXCEPT_ADVISED`.
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Makes the change for this process.
pub(crate) fn obey(change: MemoryPolicy) -> Result<(), ChildError> {
    let none: libc::c_ulong = 0;
    let (disable, flags): (libc::c_ulong, _) = match change {
        MemoryPolicy::ThpDisable(ThpDisable::Off) => (0, none),
        MemoryPolicy::ThpDisable(ThpDisable::All) => (1, none),
        MemoryPolicy::ThpDisable(ThpDisable::ExceptAdvised) => (1, EXCEPT_ADVISED),
        // Locked is the heap, and not the harness: the allocator is told.
        MemoryPolicy::LockAll(_) | MemoryPolicy::Personality(_) => return Ok(()),
    };
    // SAFETY: touches no memory.
    let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disable, flags, none, none) };
    if done == 0 { Ok(()) } else { Err(refused(io::Error::last_os_error())) }
}

/// The kernel has refused a change.
pub(crate) fn refused(why: io::Error) -> ChildError {
    ChildError::system("do what the program did to its memory policy (--memory-policy ignored leaves it out)")(why)
}

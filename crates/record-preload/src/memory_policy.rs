//! Memory policies of the whole process: `prctl(PR_SET_THP_DISABLE)`, `mlockall`, `munlockall` and `personality`. The
//! wrappers of `prctl` and `syscall` are in [`filter_hooks`](crate::filter_hooks).
//!
//! A change is recorded after the call has succeeded, even while recording is paused, because it affects later events.
//! System calls that the program makes with its own `syscall` instruction are not detected.

use core::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_long, c_uint, c_ulong};

use crate::encoding::{Kind, POLICY_LOCK_ALL, POLICY_PERSONALITY, POLICY_THP_DISABLE, Record};
use crate::{clock, real, sys, thread_buffer};

/// `PR_THP_DISABLE_EXCEPT_ADVISED`, Linux 6.18.
const EXCEPT_ADVISED: c_ulong = 1 << 1;
/// Argument of `personality` that queries without a change.
const ASK: c_ulong = 0xffff_ffff;

/// The policies in force. A forked child inherits them with this memory.
static THP_DISABLE: AtomicU32 = AtomicU32::new(0);
static PERSONALITY: AtomicU32 = AtomicU32::new(0);

/// Reads the policies that the image inherited. Called when the object is loaded, before the program can change them.
pub fn begin() {
    THP_DISABLE.store(sys::thp_disable(), Ordering::Relaxed);
    PERSONALITY.store(sys::personality(), Ordering::Relaxed);
}

/// The result of `PR_GET_THP_DISABLE`, and the personality.
pub fn in_force() -> (u32, u32) {
    (THP_DISABLE.load(Ordering::Relaxed), PERSONALITY.load(Ordering::Relaxed))
}

/// Records a system call that returned `result`, if it changed a policy.
pub fn note(number: c_long, first: c_ulong, second: c_ulong, third: c_ulong, result: c_long) {
    if result < 0 {
        return;
    }
    let change = match number {
        libc::SYS_prctl if first as c_int == libc::PR_SET_THP_DISABLE => {
            let value = match (second, third & EXCEPT_ADVISED) {
                (0, _) => 0,
                (_, 0) => 1,
                _ => 1 | EXCEPT_ADVISED as u32,
            };
            THP_DISABLE.store(value, Ordering::Relaxed);
            (POLICY_THP_DISABLE, value)
        }
        libc::SYS_mlockall => (POLICY_LOCK_ALL, first as u32),
        libc::SYS_munlockall => (POLICY_LOCK_ALL, 0),
        libc::SYS_personality if first as c_uint != ASK as c_uint && first as c_uint != result as c_uint => {
            PERSONALITY.store(first as u32, Ordering::Relaxed);
            (POLICY_PERSONALITY, first as u32)
        }
        _ => return,
    };
    thread_buffer::push(&Record::new(Kind::MemoryPolicy, clock::ticks(), change.0, u64::from(change.1)));
}

/// The result if no object defines the real function.
pub fn no_such_call() -> c_int {
    sys::set_errno(libc::ENOSYS);
    -1
}

/// POSIX `mlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    let Some(real) = real::mlockall() else { return no_such_call() };
    // SAFETY: makes pages present but changes no contents.
    let result = unsafe { real(flags) };
    note(libc::SYS_mlockall, flags as c_ulong, 0, 0, c_long::from(result));
    result
}

/// POSIX `munlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    let Some(real) = real::munlockall() else { return no_such_call() };
    // SAFETY: touches no memory.
    let result = unsafe { real() };
    note(libc::SYS_munlockall, 0, 0, 0, c_long::from(result));
    result
}

/// Linux `personality`.
#[unsafe(no_mangle)]
pub extern "C" fn personality(persona: c_ulong) -> c_int {
    let Some(real) = real::personality() else { return no_such_call() };
    // SAFETY: touches no memory.
    let result = unsafe { real(persona) };
    note(libc::SYS_personality, persona, 0, 0, c_long::from(result));
    result
}

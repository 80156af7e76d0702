//! `dlopen` while objects are watched: without `RTLD_DEEPBIND`.
//!
//! A library that is opened with this flag looks up `free` first in its own dependencies, and finds glibc's. (Debian's
//! PHP opens all its modules this way.) glibc aborts if it frees a watched object. So the recorder clears the flag, and
//! the library's calls are recorded. Without `--accesses pages` the flag is kept.
//!
//! The C library's `dlopen` uses the return address to find the caller's search path. So the function here jumps to it
//! without a stack frame. `native-ffi/src/open.rs` has the same function with a constant mask: each must be in the
//! object that exports it, and the two objects have no crate in common.

use core::ffi::c_char;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{c_int, c_void};

use crate::real;

/// The C library's `dlopen`; null until the first call.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Mask of the flags that are passed on.
static PASSED_ON: AtomicI32 = AtomicI32::new(!0);

/// Clears `RTLD_DEEPBIND` from now on, so that all libraries share the program's `malloc` and `free`.
pub fn clear_deep_binding() {
    PASSED_ON.store(!libc::RTLD_DEEPBIND, Ordering::Relaxed);
}

extern "C" fn resolve() -> *mut c_void {
    let real = real::find(c"dlopen");
    REAL.store(real, Ordering::Relaxed);
    real
}

/// `dlopen`, with `RTLD_DEEPBIND` cleared while objects are watched.
///
/// # Safety
/// As for the C library's `dlopen`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and esi, dword ptr [rip + {passed_on}]",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jnz 2f",
        // Save both arguments and align the stack for the call.
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {resolve}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "jmp rax",
        passed_on = sym PASSED_ON,
        real = sym REAL,
        resolve = sym resolve,
    )
}

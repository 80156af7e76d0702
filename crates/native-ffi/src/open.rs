//! `dlopen` without `RTLD_DEEPBIND`.
//!
//! A library that is opened with `RTLD_DEEPBIND` resolves `malloc` in its own dependencies, and so uses glibc's, while
//! the rest of the program uses this allocator. A block that one allocates and the other frees aborts the process.
//! (Debian's PHP opens all its modules this way.) So this function clears the flag. The library's other symbols then
//! also resolve to the program's.
//!
//! The C library uses the caller's address to find the caller's search path. So this function jumps to the C library's
//! `dlopen`, without a stack frame of its own. `record-preload/src/open.rs` has the same function with a variable mask.
//! Each copy must be in the object that exports it, and the two objects have no crate in common.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's `dlopen`; null until the first call.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn resolve() -> *mut c_void {
    // SAFETY: only looks up a name, in the objects after this one.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    REAL.store(real, Ordering::Relaxed);
    real
}

/// `dlopen`, with `RTLD_DEEPBIND` cleared.
///
/// # Safety
/// As for the C library's `dlopen`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "and esi, {without}",
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
        without = const !libc::RTLD_DEEPBIND,
        real = sym REAL,
        resolve = sym resolve,
    )
}

//! `dlopen` without `RTLD_DEEPBIND`.
//!
//! A library that is opened with that flag (Debian's PHP opens all its modules so) takes `malloc` from its own dependencies,
//! so from glibc, while the rest of the program takes it from here; a block that crosses between them ends the process. So
//! the flag is cleared. Such a library then also shares its other symbols with the program.
//!
//! The C library looks at the caller's address to find the caller's own search path. So this jumps, and is no frame.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's `dlopen`; null until the first call.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn resolve() -> *mut c_void {
    // SAFETY: looks a name up behind this object.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    REAL.store(real, Ordering::Relaxed);
    real
}

/// `dlopen`, with `RTLD_DEEPBIND` cleared.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "and esi, {without}",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jnz 2f",
        // Both arguments stay, and the stack is aligned for a call.
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

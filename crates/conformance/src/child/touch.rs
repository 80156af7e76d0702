//! Touches that may fail: if the touch raises a signal, it returns an error and the process continues.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::io;

// These functions do not use the stack, so the signal handler can continue at `touch_failed`, which returns 1. The fence
// keeps the processor from looking up the next pages before an access that faults is complete: see `stale_entries`.
global_asm!(
    ".globl hksim_rules_touch_begin",
    "hksim_rules_touch_begin:",
    ".globl hksim_rules_read",
    "hksim_rules_read:", // (address)
    "mov al, byte ptr [rdi]",
    "lfence",
    "xor eax, eax",
    "ret",
    ".globl hksim_rules_write",
    "hksim_rules_write:", // (address, value)
    "mov byte ptr [rdi], sil",
    "lfence",
    "xor eax, eax",
    "ret",
    ".globl hksim_rules_touch_failed",
    "hksim_rules_touch_failed:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    fn hksim_rules_touch_begin();
    fn hksim_rules_read(address: *const u8) -> c_int;
    fn hksim_rules_write(address: *mut u8, value: u8) -> c_int;
    fn hksim_rules_touch_failed();
}

/// Reads a byte; false if that raises a signal. [`install`] must have been called.
///
/// # Safety
/// A read of the address must have no effect other than a fault.
pub(super) unsafe fn read(address: *const u8) -> bool {
    // SAFETY: guaranteed by the caller. A failing access returns 1.
    unsafe { hksim_rules_read(address) == 0 }
}

/// Writes a byte; false if that raises a signal. [`install`] must have been called.
///
/// # Safety
/// If the address can be written, the caller must own the byte.
pub(super) unsafe fn write(address: *mut u8, value: u8) -> bool {
    // SAFETY: guaranteed by the caller. A failing access returns 1.
    unsafe { hksim_rules_write(address, value) == 0 }
}

/// Installs handlers for SIGSEGV and SIGBUS, for every thread.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is valid. The handler is async-signal-safe: it changes only its own context or the
    // signal's action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, _: *const libc::siginfo_t, context: *mut c_void) {
    let touches = hksim_rules_touch_begin as *const () as i64..hksim_rules_touch_failed as *const () as i64;
    // SAFETY: with SA_SIGINFO the kernel passes a context that the handler may change.
    let instruction = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if touches.contains(instruction) {
        *instruction = touches.end;
    } else {
        // The fault is elsewhere in this process. With the default action it repeats on return and kills the process.
        // SAFETY: touches no memory.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

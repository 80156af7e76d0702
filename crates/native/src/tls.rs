//! Two thread-local pointers: the thread's state in each of the two allocators.
//!
//! They use initial-exec thread-local storage, which exists before a thread's first instruction and costs two loads.
//! `thread_local!` in a shared object would call `__tls_get_addr`, which may allocate. Both pointers start at
//! [`EMPTY`], so that the fast paths need no null check. This works because the loader relocates the initial values
//! before it creates the first thread's storage.

use std::arch::{asm, global_asm};

use crate::process::thread_state::{EMPTY, ThreadState};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the native allocator supports Linux on x86_64 only: its thread-local storage is in assembly");

global_asm!(
    ".pushsection .tdata.hksim_threads,\"awT\",@progbits",
    ".globl hksim_thread_constant",
    ".hidden hksim_thread_constant",
    ".p2align 3",
    "hksim_thread_constant: .quad {empty}",
    ".globl hksim_thread_configured",
    ".hidden hksim_thread_configured",
    "hksim_thread_configured: .quad {empty}",
    ".popsection",
    empty = sym EMPTY,
);

/// Defines the functions that read and write one of the two pointers.
macro_rules! pointer {
    ($symbol:literal, $get:ident, $set:ident) => {
        /// The calling thread's state.
        #[inline(always)]
        pub(crate) fn $get() -> *mut ThreadState {
            let value: *mut ThreadState;
            // SAFETY: reads the eight bytes that the symbol reserves in every thread's static block.
            unsafe {
                asm!(
                    concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {value}, qword ptr fs:[{at}]",
                    at = out(reg) _,
                    value = lateout(reg) value,
                    options(nostack, preserves_flags, readonly),
                );
            }
            value
        }

        /// Sets the calling thread's state.
        #[inline(always)]
        pub(crate) fn $set(value: *mut ThreadState) {
            // SAFETY: writes the eight bytes that the symbol reserves in the calling thread's static block.
            unsafe {
                asm!(
                    concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{at}], {value}",
                    at = out(reg) _,
                    value = in(reg) value,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}

pointer!("hksim_thread_constant", constant, set_constant);
pointer!("hksim_thread_configured", configured, set_configured);

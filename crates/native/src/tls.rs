//! Two pointers per thread: its desk at either allocator.
//!
//! Initial-exec thread-local storage. `thread_local!` in a shared object would go through `__tls_get_addr`, which may
//! allocate; this form is there before the first line of a thread runs, and costs two loads. Both begin as pointers to
//! nobody's desk, so that no fast path asks whether there is one: the loader relocates a program's thread-local storage
//! before it makes the first thread's.

use std::arch::{asm, global_asm};

use crate::process::thread_state::{EMPTY, ThreadState};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the native allocator knows Linux on x86_64 only: thread-local storage is written for it");

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

/// Reads and writes one of the two.
macro_rules! pointer {
    ($symbol:literal, $get:ident, $set:ident) => {
        /// The calling thread's desk.
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

        /// Sets it.
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

//! Two pointers per thread: its desk at either allocator.
//!
//! Initial-exec thread-local storage. `thread_local!` in a shared object would go through `__tls_get_addr`, which may
//! allocate; this form is there before the first line of a thread runs, and costs two loads. Both begin as pointers to
//! nobody's desk, so that no fast path asks whether there is one: the loader relocates a program's thread-local storage
//! before it makes the first thread's.

use std::arch::{asm, global_asm};

use crate::process::desk::{Desk, NOBODYS};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the native allocator knows Linux on x86_64 only: thread-local storage is written for it");

global_asm!(
    ".pushsection .tdata.hksim_desks,\"awT\",@progbits",
    ".globl hksim_desk_constant",
    ".hidden hksim_desk_constant",
    ".p2align 3",
    "hksim_desk_constant: .quad {nobodys}",
    ".globl hksim_desk_chosen",
    ".hidden hksim_desk_chosen",
    "hksim_desk_chosen: .quad {nobodys}",
    ".popsection",
    nobodys = sym NOBODYS,
);

/// Reads and writes one of the two.
macro_rules! pointer {
    ($symbol:literal, $get:ident, $set:ident) => {
        /// The calling thread's desk.
        #[inline(always)]
        pub(crate) fn $get() -> *mut Desk {
            let value: *mut Desk;
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
        pub(crate) fn $set(value: *mut Desk) {
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

pointer!("hksim_desk_constant", constant, set_constant);
pointer!("hksim_desk_chosen", chosen, set_chosen);

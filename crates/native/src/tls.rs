//! Two pointers per thread: its heap in either allocator.
//!
//! Initial-exec thread-local storage. `thread_local!` in a shared object would go through `__tls_get_addr`, which may
//! allocate; this form is there before the first line of a thread runs, and costs two loads.

use std::arch::{asm, global_asm};

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the native allocator knows Linux on x86_64 only: thread-local storage is written for it");

global_asm!(
    ".pushsection .tbss.hksim_heaps,\"awT\",@nobits",
    ".globl hksim_heap_constant",
    ".hidden hksim_heap_constant",
    ".p2align 3",
    "hksim_heap_constant: .zero 8",
    ".globl hksim_heap_chosen",
    ".hidden hksim_heap_chosen",
    "hksim_heap_chosen: .zero 8",
    ".popsection",
);

/// Reads and writes one of the two.
macro_rules! pointer {
    ($symbol:literal, $get:ident, $set:ident) => {
        /// The calling thread's pointer; null before it is set.
        #[inline(always)]
        pub(crate) fn $get() -> *mut () {
            let value: *mut ();
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

        /// Sets the calling thread's pointer.
        #[inline(always)]
        pub(crate) fn $set(value: *mut ()) {
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

pointer!("hksim_heap_constant", constant, set_constant);
pointer!("hksim_heap_chosen", chosen, set_chosen);

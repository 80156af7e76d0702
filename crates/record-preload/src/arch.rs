//! Architecture-specific parts: one thread-local pointer and the clock.

use core::arch::{asm, global_asm};

use crate::thread_buffer::ThreadBuffer;

// A few bytes of initial-exec thread-local storage. `thread_local!` in a shared object would go through
// `__tls_get_addr`, which may allocate.
global_asm!(
    ".pushsection .tbss.hksim_thread_buffer,\"awT\",@nobits",
    ".globl hksim_thread_buffer",
    ".hidden hksim_thread_buffer",
    ".p2align 3",
    "hksim_thread_buffer: .zero 8",
    ".globl hksim_stack",
    ".hidden hksim_stack",
    "hksim_stack: .zero 16",
    ".popsection",
);

/// The calling thread's buffer; null before its first event.
#[inline(always)]
pub fn buffer() -> *mut ThreadBuffer {
    let buffer: *mut ThreadBuffer;
    // SAFETY: reads the eight bytes that `hksim_thread_buffer` reserves in every thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_thread_buffer@GOTTPOFF]",
            "mov {buffer}, qword ptr fs:[{at}]",
            at = out(reg) _,
            buffer = lateout(reg) buffer,
            options(nostack, preserves_flags, readonly),
        );
    }
    buffer
}

/// Sets the calling thread's buffer.
pub fn set_buffer(buffer: *mut ThreadBuffer) {
    // SAFETY: writes the eight bytes that `hksim_thread_buffer` reserves in the calling thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_thread_buffer@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {buffer}",
            at = out(reg) _,
            buffer = in(reg) buffer,
            options(nostack, preserves_flags),
        );
    }
}

/// The known readable range of the calling thread's stack: first address, and the address after the last.
#[inline(always)]
pub fn stack_range() -> (u64, u64) {
    let (low, high);
    // SAFETY: reads the 16 bytes that `hksim_stack` reserves in every thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_stack@GOTTPOFF]",
            "mov {low}, qword ptr fs:[{at}]",
            "mov {high}, qword ptr fs:[{at} + 8]",
            at = out(reg) _,
            low = out(reg) low,
            high = lateout(reg) high,
            options(nostack, preserves_flags, readonly),
        );
    }
    (low, high)
}

/// Stores the range for [`stack_range`]. A signal handler that runs between the two stores may leave one end from each
/// of two ranges. So readers check each end against the stack pointer before use.
#[inline(always)]
pub fn set_stack_range(low: u64, high: u64) {
    // SAFETY: writes the 16 bytes that `hksim_stack` reserves in the calling thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_stack@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {low}",
            "mov qword ptr fs:[{at} + 8], {high}",
            at = out(reg) _,
            low = in(reg) low,
            high = in(reg) high,
            options(nostack, preserves_flags),
        );
    }
}

/// The time stamp counter. The read is not serialising: rdtscp would double the cost of an event, and the merge repairs
/// the few timestamps that are out of order.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc has no precondition on x86_64 Linux.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The time stamp counter, read after all earlier instructions have completed. For a block received from another
/// thread, the time is not earlier than its arrival.
#[inline(always)]
pub fn ticks_in_order() -> u64 {
    // SAFETY: neither has a precondition on x86_64.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

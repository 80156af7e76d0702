//! What the machine provides: one thread-local pointer and the clock.

use core::arch::{asm, global_asm};

use crate::lane::Lane;

// Eight bytes of initial-exec thread-local storage. `thread_local!` in a shared object would go through
// `__tls_get_addr`, which may allocate.
global_asm!(
    ".pushsection .tbss.hksim_lane,\"awT\",@nobits",
    ".globl hksim_lane",
    ".hidden hksim_lane",
    ".p2align 3",
    "hksim_lane: .zero 8",
    ".popsection",
);

/// The calling thread's lane; null before its first event.
#[inline(always)]
pub fn lane() -> *mut Lane {
    let lane: *mut Lane;
    // SAFETY: reads the eight bytes that `hksim_lane` reserves in every thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_lane@GOTTPOFF]",
            "mov {lane}, qword ptr fs:[{at}]",
            at = out(reg) _,
            lane = lateout(reg) lane,
            options(nostack, preserves_flags, readonly),
        );
    }
    lane
}

/// Makes `lane` the calling thread's.
pub fn set_lane(lane: *mut Lane) {
    // SAFETY: writes the eight bytes that `hksim_lane` reserves in the calling thread's static block.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + hksim_lane@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {lane}",
            at = out(reg) _,
            lane = in(reg) lane,
            options(nostack, preserves_flags),
        );
    }
}

/// The time stamp counter. Not serialising: the merge repairs the few stamps that come out of order, and rdtscp would
/// double the cost of an event.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: rdtsc has no precondition on x86_64 Linux.
    unsafe { core::arch::x86_64::_rdtsc() }
}

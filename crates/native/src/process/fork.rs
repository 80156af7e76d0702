//! Fork: nothing is held while it happens; the child frees the locks and gives up the heaps of threads that it does not have.

use std::sync::atomic::{AtomicU32, Ordering};

use super::locking;
use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{Kind, start_if_wanted};
use crate::slots;

/// Heaps that were on a slow path when their process forked, and are lost to this one.
pub(super) static HEAPS_LOST: AtomicU32 = AtomicU32::new(0);

/// Runs when the object or the program is loaded, before its threads. Not at the first allocation: the C library may hold
/// the lock of its own list while it allocates for it.
extern "C" fn register() {
    // SAFETY: both have the right signature and stay. Where there is no memory for it, forks are as unsafe as before.
    unsafe { libc::pthread_atfork(Some(before), None, Some(after_in_child)) };
}

#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

/// An allocator that is being made is waited for.
extern "C" fn before() {
    start_if_wanted();
}

extern "C" fn after_in_child() {
    match start_if_wanted() {
        Some(Kind::Constant) => inherit(&CONSTANT),
        Some(Kind::Configured) => inherit(&CONFIGURED),
        None => {}
    }
}

/// Gives up the heaps of the threads that are not here.
fn inherit<G: ProcessGeometry>(process_allocator: &'static ProcessAllocator<G>) {
    // SAFETY: this is the child's only thread.
    unsafe { locking::forget(&process_allocator.allocator().mem) };
    // SAFETY: this is the child's only thread, and its first call: the thread that forked was in none.
    let lost = unsafe {
        let common = process_allocator.renew_common();
        slots::inherit(
            process_allocator.allocator(),
            |id| process_allocator.storage(id),
            [process_allocator.heap(), common],
        )
    };
    HEAPS_LOST.fetch_add(lost, Ordering::Relaxed);
}

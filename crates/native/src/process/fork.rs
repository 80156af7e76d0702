//! Fork: the parent holds no lock during a fork; the child resets the locks and closes the heaps of the other threads.

use std::sync::atomic::{AtomicU32, Ordering};

use super::locking;
use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{AllocatorKind, start_if_wanted};
use crate::slots;

/// Heaps that were on a slow path during a fork and are lost to this process.
pub(super) static HEAPS_LOST: AtomicU32 = AtomicU32::new(0);

/// Runs when the shared object or program is loaded, before there are threads. Registering at the first allocation
/// would be too late: the C library may allocate while it holds the lock of its list of fork handlers.
extern "C" fn register() {
    // SAFETY: both handlers have the right signature and are never unloaded. If the call fails, forks are as unsafe as
    // without the handlers.
    unsafe { libc::pthread_atfork(Some(before), None, Some(after_in_child)) };
}

#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

/// If the allocator is being created, waits until it is complete.
extern "C" fn before() {
    start_if_wanted();
}

extern "C" fn after_in_child() {
    match start_if_wanted() {
        Some(AllocatorKind::Constant) => inherit(&CONSTANT),
        Some(AllocatorKind::Configured) => inherit(&CONFIGURED),
        None => {}
    }
}

/// Closes the heaps of the threads that do not exist in the child.
fn inherit<G: ProcessGeometry>(process_allocator: &'static ProcessAllocator<G>) {
    // SAFETY: this is the child's only thread.
    unsafe { locking::forget(&process_allocator.allocator().mem) };
    // SAFETY: this is the child's only thread. It is in no call of the allocator: the thread that forked was in none.
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

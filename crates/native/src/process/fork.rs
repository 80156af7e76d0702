//! Fork: the pool is at rest while it happens, and the child gives up the heaps of threads that it does not have.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};

use hksim_policy::Memory;
use hksim_policy::layout::HEAPS_MAX;

use super::served::{CHOSEN, CONSTANT, Place, Served};
use super::start::{Kind, start_if_wanted};

/// The pool's lock, from before a fork to after it.
struct Held(UnsafeCell<Option<MutexGuard<'static, ()>>>);

// SAFETY: written by whoever holds the lock, and in a child by its only thread.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Heaps that were on a slow path when their process forked, and are lost to this one.
pub(super) static HEAPS_LOST: AtomicU32 = AtomicU32::new(0);

/// Runs when the object or the program is loaded, before its threads. Not at the first allocation: the C library may hold
/// the lock of its own list while it allocates for it.
extern "C" fn register() {
    // SAFETY: the three have the right signature and stay. Where there is no memory for it, forks are as unsafe as before.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn before() {
    // An allocator that is being made is waited for, too.
    let guard = match start_if_wanted() {
        Some(Kind::Constant) => CONSTANT.allocator().mem.lock(),
        Some(Kind::Chosen) => CHOSEN.allocator().mem.lock(),
        None => return,
    };
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn after_in_parent() {
    // SAFETY: this thread holds the lock, if `before` took it.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_in_child() {
    after_in_parent();
    match start_if_wanted() {
        Some(Kind::Constant) => inherit(&CONSTANT),
        Some(Kind::Chosen) => inherit(&CHOSEN),
        None => {}
    }
}

/// Gives up the heaps of the threads that are not here.
fn inherit<G: Place>(served: &'static Served<G>) {
    let allocator = served.allocator();
    let own = served.heap();
    for id in 0..HEAPS_MAX {
        let at = served.storage(id);
        if !allocator.is_open(id) || Some(at) == own {
            continue;
        }
        match served.orphan(id) {
            Some(heap) => allocator.close_orphan(heap),
            None => _ = HEAPS_LOST.fetch_add(1, Ordering::Relaxed),
        }
    }
    if let Some(mut heap) = own {
        // SAFETY: the heap is this thread's alone.
        allocator.recover_heap(unsafe { heap.as_mut() });
    }
}

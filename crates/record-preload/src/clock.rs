//! When the time stamp counter is read: at every 16th event while one thread makes events, at every event otherwise.
//!
//! Where a program waits for memory, reading the counter waits with it, and costs more than all the rest of an event. So
//! an event may have the time of the last one that read it: too early, never too late. Between threads that is
//! safe, as it ends before the second thread's first event is known to anybody: what the first thread does
//! because of another thread's event comes after it, and reads the counter; what another thread does because of
//! the first's comes later than a time that is too early. A resizing call is the one event that gives an address away before
//! it is recorded, so a thread announces itself before its first one ([`thread_resizes`]).
//!
//! It begins again when all other threads that ever made an event have ended for certain. The first event after that
//! reads the counter, so that no time is older than what those threads did.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{arch, session, thread_buffer};

/// What the session wants: events that may follow one that read the counter without doing so; 0 to read it at every event.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// The same as it is now, in the low half; in the high half how many threads have announced themselves in this process. One
/// word, so that the counter is not left unread just as another thread begins.
static STATE: AtomicU64 = AtomicU64::new(0);
/// How many of these threads had ended when another took their buffer over.
static REPLACED: AtomicU32 = AtomicU32::new(0);

const THREADS_SHIFT: u32 = 32;

/// The time at which a thread last gave up the counter; 0 before the first.
static LAST_OF_THREAD: AtomicU64 = AtomicU64::new(0);

/// The time: in a thread that may not read the counter, that of the moment when it gave it up.
#[inline(always)]
pub fn ticks() -> u64 {
    match LAST_OF_THREAD.load(Ordering::Relaxed) {
        0 => arch::ticks(),
        last => ticks_or(last, arch::ticks),
    }
}

/// As [`ticks`], not read before what came earlier in the program is done.
#[inline(always)]
pub fn ticks_in_order() -> u64 {
    match LAST_OF_THREAD.load(Ordering::Relaxed) {
        0 => arch::ticks_in_order(),
        last => ticks_or(last, arch::ticks_in_order),
    }
}

#[cold]
fn ticks_or(last: u64, read: fn() -> u64) -> u64 {
    if thread_buffer::is_without_clock() { last } else { read() }
}

/// The calling thread enters seccomp's strict mode, in which reading the counter is an error. Its order needs no times, as
/// it begins no other thread there.
pub fn give_up() {
    LAST_OF_THREAD.store(arch::ticks(), Ordering::Relaxed);
    thread_buffer::do_without_clock();
}

/// Does as the session wants. Called before any thread of a process announces itself.
pub fn begin() {
    let wanted = session::untimed_events();
    WANTED.store(wanted, Ordering::SeqCst);
    REPLACED.store(0, Ordering::SeqCst);
    STATE.store(u64::from(wanted), Ordering::SeqCst);
}

/// Events that may follow one that read the counter without doing so.
#[inline(always)]
pub fn untimed_events() -> u32 {
    STATE.load(Ordering::Relaxed) as u32
}

/// Whether the time of an event before still does, read in `epoch` of the session.
#[inline(always)]
pub fn is_coarse_since(epoch: u32) -> bool {
    untimed_events() != 0 && session::epoch() == epoch
}

/// Notes that a thread will make its first event. From the second thread on each event reads the counter.
pub fn thread_begins() {
    let begin = |state: u64| {
        let threads = (state >> THREADS_SHIFT) + 1;
        Some(threads << THREADS_SHIFT | if threads == 1 { state & u64::from(u32::MAX) } else { 0 })
    };
    let _ = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin);
}

/// Notes that a thread has ended for certain, and that another takes over its buffer and will announce itself.
pub fn thread_replaced() {
    REPLACED.fetch_add(1, Ordering::SeqCst);
}

/// Notes that the calling thread is about to resize a block.
#[inline(always)]
pub fn thread_resizes() {
    if WANTED.load(Ordering::Relaxed) != 0 {
        thread_buffer::announce_thread();
    }
}

/// Leaves the counter unread again if the calling thread is the only one left of those that have announced themselves;
/// whether it is. `ended` counts the others that have ended, but for those that were replaced.
pub fn try_alone(ended: impl FnOnce() -> u32) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let state = STATE.load(Ordering::SeqCst);
    if wanted == 0 || state as u32 != 0 {
        return false;
    }
    let threads = (state >> THREADS_SHIFT) as u32;
    let replaced = REPLACED.load(Ordering::SeqCst);
    // A thread that announces itself from here on changes the state, and then nothing is changed here.
    threads == replaced.saturating_add(ended()).saturating_add(1)
        && STATE.compare_exchange(state, state | u64::from(wanted), Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

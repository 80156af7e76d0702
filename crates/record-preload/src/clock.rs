//! When the time stamp counter is read: at every 16th event while only one thread has events, at every event otherwise.
//!
//! If a program waits for memory, reading the counter waits too, and costs more than the rest of the event. So an event
//! may reuse the last reading: its time is then too early, never too late. This stays safe between threads because it
//! ends before any thread can know of the second thread's first event. What the first thread does because of another's
//! event comes after that, and reads the counter. What another thread does because of the first's event comes later
//! than a time that is too early. A resizing call is the only event that gives an address away before it is recorded,
//! so a thread announces itself before its first one ([`thread_resizes`]).
//!
//! Reuse resumes when all other threads that ever had an event have certainly ended. The first event after that reads
//! the counter, so that no time is older than what those threads did.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{arch, session, thread_buffer};

/// The session's setting: events that may reuse the last reading; 0 to read the counter at every event.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Low half: the setting in force now. High half: the number of threads in this process that have announced themselves.
/// One word, so that reuse cannot start just as another thread begins.
static STATE: AtomicU64 = AtomicU64::new(0);
/// How many of these threads had ended when another thread took over their buffer.
static REPLACED: AtomicU32 = AtomicU32::new(0);

const THREADS_SHIFT: u32 = 32;

/// The time at which a thread last gave up the counter; 0 before that.
static LAST_OF_THREAD: AtomicU64 = AtomicU64::new(0);

/// The time; in a thread that may not read the counter, the time at which it gave it up.
#[inline(always)]
pub fn ticks() -> u64 {
    match LAST_OF_THREAD.load(Ordering::Relaxed) {
        0 => arch::ticks(),
        last => ticks_or(last, arch::ticks),
    }
}

/// As [`ticks`], but not before all earlier instructions have completed.
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

/// The calling thread enters seccomp's strict mode, which forbids reading the counter. Its events are ordered without
/// times, because it can start no other thread.
pub fn give_up() {
    LAST_OF_THREAD.store(arch::ticks(), Ordering::Relaxed);
    thread_buffer::do_without_clock();
}

/// Applies the session's setting. Called before any thread of a process announces itself.
pub fn begin() {
    let wanted = session::untimed_events();
    WANTED.store(wanted, Ordering::SeqCst);
    REPLACED.store(0, Ordering::SeqCst);
    STATE.store(u64::from(wanted), Ordering::SeqCst);
}

/// Events that may reuse the last reading of the counter.
#[inline(always)]
pub fn untimed_events() -> u32 {
    STATE.load(Ordering::Relaxed) as u32
}

/// Whether a reading made in `epoch` of the session may still be reused.
#[inline(always)]
pub fn is_coarse_since(epoch: u32) -> bool {
    untimed_events() != 0 && session::epoch() == epoch
}

/// Notes that a thread is about to have its first event. From the second thread on, each event reads the counter.
pub fn thread_begins() {
    let begin = |state: u64| {
        let threads = (state >> THREADS_SHIFT) + 1;
        Some(threads << THREADS_SHIFT | if threads == 1 { state & u64::from(u32::MAX) } else { 0 })
    };
    let _ = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin);
}

/// Notes that a thread has certainly ended, and that another one takes over its buffer and will announce itself.
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

/// Resumes reuse if the calling thread is the only one left of those that have announced themselves; returns whether it
/// is. `ended` counts the other threads that have ended and were not replaced.
pub fn try_alone(ended: impl FnOnce() -> u32) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let state = STATE.load(Ordering::SeqCst);
    if wanted == 0 || state as u32 != 0 {
        return false;
    }
    let threads = (state >> THREADS_SHIFT) as u32;
    let replaced = REPLACED.load(Ordering::SeqCst);
    // A thread that announces itself from here on changes the state, and then the exchange fails.
    threads == replaced.saturating_add(ended()).saturating_add(1)
        && STATE.compare_exchange(state, state | u64::from(wanted), Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

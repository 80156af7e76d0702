//! Decides when the time stamp counter is read: while only one thread has events, at every 16th event; otherwise at
//! every event.
//!
//! While a program waits for memory, reading the counter waits too, and costs more than the rest of the event. So an
//! event may reuse the last reading. The reused time may be too early but never too late.
//!
//! The order between threads stays correct, because reuse ends before any thread can see the second thread's first
//! event. If the first thread reacts to another thread's event, reuse has already ended, and it reads the counter. If
//! another thread reacts to the first thread's event, its time is later than that event's early time. A resizing call
//! is the only event that makes an address reusable before the event is recorded. So a thread announces itself before
//! its first resizing call ([`thread_resizes`]).
//!
//! Reuse resumes when all other threads that ever had an event have certainly ended. The next event reads the counter,
//! so that no later event has a time before the events of those threads.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{arch, session, thread_buffer};

/// The session's setting: number of events that may reuse one reading; 0 to read the counter at every event.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Low half: the setting in force now. High half: the number of threads in this process that have announced themselves.
/// Both are in one word, so that reuse cannot start while another thread announces itself.
static STATE: AtomicU64 = AtomicU64::new(0);
/// Number of announced threads that have ended and whose buffer another thread has taken over.
static REPLACED: AtomicU32 = AtomicU32::new(0);

const THREADS_SHIFT: u32 = 32;

/// The time at which a thread last lost access to the counter; 0 if none has.
static LAST_OF_THREAD: AtomicU64 = AtomicU64::new(0);

/// The time. In a thread that may no longer read the counter: the time at which it lost access.
#[inline(always)]
pub fn ticks() -> u64 {
    match LAST_OF_THREAD.load(Ordering::Relaxed) {
        0 => arch::ticks(),
        last => ticks_or(last, arch::ticks),
    }
}

/// As [`ticks`], but read after all earlier instructions have completed.
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

/// Notes that the calling thread is about to enter seccomp's strict mode, which forbids reading the counter. Its events
/// are ordered without times, because it can start no other thread.
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

/// Number of events that may reuse one reading of the counter.
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

/// Resumes reuse if all other threads that have announced themselves have ended; returns whether it did. `ended` counts
/// the other threads that have ended and were not replaced.
pub fn try_alone(ended: impl FnOnce() -> u32) -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let state = STATE.load(Ordering::SeqCst);
    if wanted == 0 || state as u32 != 0 {
        return false;
    }
    let threads = (state >> THREADS_SHIFT) as u32;
    let replaced = REPLACED.load(Ordering::SeqCst);
    // If a thread announces itself from here on, it changes the state, and the exchange fails.
    threads == replaced.saturating_add(ended()).saturating_add(1)
        && STATE.compare_exchange(state, state | u64::from(wanted), Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

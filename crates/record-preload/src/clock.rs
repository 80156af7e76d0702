//! When the time stamp counter is read: at every event, or at every 16th while one thread makes events.
//!
//! Where a program waits for memory, reading the counter waits with it, and costs more than all the rest of an event. So
//! an event may have the time of the last one that read it: too early, never too late. Between threads that is
//! safe, as it ends before the second thread's first event is known to anybody: what the first thread does
//! because of another thread's event comes after it, and reads the counter; what another thread does because of
//! the first's comes later than a time that is too early. A resizing call is the one event that gives an address away before
//! it is recorded, so it says beforehand that it comes ([`thread_resizes`]).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{arch, lane, process, session};

/// Events that may follow one that read the counter without doing so; 0 to read it at every event.
static UNTIMED: AtomicU32 = AtomicU32::new(0);

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
    if lane::is_without_clock() { last } else { read() }
}

/// The calling thread enters seccomp's strict mode, in which reading the counter is an error. Its order needs no times, as
/// it begins no other thread there.
pub fn give_up() {
    LAST_OF_THREAD.store(arch::ticks(), Ordering::Relaxed);
    lane::do_without_clock();
}

/// Does as the session wants. Called before a process numbers its first thread.
pub fn begin() {
    UNTIMED.store(session::untimed_events(), Ordering::SeqCst);
}

/// Events that may follow one that read the counter without doing so.
#[inline(always)]
pub fn untimed_events() -> u32 {
    UNTIMED.load(Ordering::Relaxed)
}

/// Whether the time of an event before still does, read in `epoch` of the session.
#[inline(always)]
pub fn is_coarse_since(epoch: u32) -> bool {
    untimed_events() != 0 && session::epoch() == epoch
}

/// Notes that thread `number` of the process makes its first event.
pub fn thread_begins(number: u32) {
    if number != 0 {
        UNTIMED.store(0, Ordering::SeqCst);
    }
}

/// Notes that the calling thread is about to resize a block.
#[inline(always)]
pub fn thread_resizes() {
    if untimed_events() != 0 && arch::lane().is_null() {
        thread_begins(process::threads());
    }
}

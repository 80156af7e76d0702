//! Selects the watched objects: one in N of each call site and size class, and all objects of a page or more.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::site;
use crate::touched::{SAMPLE_VARIABLE, WATCHED_BYTES_MIN};

/// Number of counters, a power of two. If two sites share a counter, one in N of their combined objects is watched.
const COUNTERS: usize = 1 << 14;
/// log2 of the difference in bytes between two size classes.
const SIZE_STEP_LOG2: u32 = 4;

/// Number of objects of a kind up to the next watched one; 0 before the first.
static LEFT: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];
/// Objects of a kind watched so far.
static TURNS: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];
/// The N of "one in N"; 0 until it is known.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
/// State of the random number generator. Races between threads only repeat a number.
static RANDOM: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);

/// Whether the environment requests that objects be watched.
pub fn is_on() -> bool {
    const NAME: [u8; SAMPLE_VARIABLE.len() + 1] = zero_ended();
    // SAFETY: the name ends with a zero byte. This runs at the first allocating call, before the program does.
    let value = unsafe { libc::getenv(NAME.as_ptr().cast()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: the value is not null, so it is a C string.
    let digits = unsafe { core::ffi::CStr::from_ptr(value) }.to_bytes();
    let one_in = core::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0);
    // Gaps are up to 2N - 1, which must fit into a u32.
    ONE_IN.store(one_in.min(u32::MAX / 2), Ordering::Relaxed);
    one_in > 0
}

/// The N of "one in N".
pub fn one_in() -> u32 {
    ONE_IN.load(Ordering::Relaxed)
}

/// Decides whether to watch a new object of this size. `Some` contains the number of objects of its kind watched before
/// (0 for a large object). The first object of each kind is watched. The gaps after it are random, N on average, so
/// that sampling cannot coincide with a periodic pattern of the program.
#[inline]
pub fn turn(size: usize) -> Option<u32> {
    if size as u64 >= WATCHED_BYTES_MIN {
        return Some(0);
    }
    if size == 0 {
        return None;
    }
    let site = if site::is_on() { u64::from(site::of_caller()) } else { 0 };
    let kind = (site << 32) | (size >> SIZE_STEP_LOG2) as u64;
    let place = (kind.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - COUNTERS.ilog2())) as usize;
    let counter = &LEFT[place];
    let left = counter.load(Ordering::Relaxed);
    let is_due = left <= 1;
    counter.store(if is_due { gap() } else { left - 1 }, Ordering::Relaxed);
    is_due.then(|| TURNS[place].fetch_add(1, Ordering::Relaxed))
}

/// A random number from 1 to 2N - 1.
#[cold]
fn gap() -> u32 {
    let mut state = RANDOM.load(Ordering::Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    RANDOM.store(state, Ordering::Relaxed);
    let choices = u64::from(one_in()) * 2 - 1;
    1 + (((state >> 32) * choices) >> 32) as u32
}

const fn zero_ended() -> [u8; SAMPLE_VARIABLE.len() + 1] {
    let mut name = [0; SAMPLE_VARIABLE.len() + 1];
    let mut at = 0;
    while at < SAMPLE_VARIABLE.len() {
        name[at] = SAMPLE_VARIABLE.as_bytes()[at];
        at += 1;
    }
    name
}

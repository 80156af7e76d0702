//! The order of events under `--accesses full`, where the program runs in valgrind and hksim's valgrind tool writes every
//! access to the heap to a stream.
//!
//! Each event takes a number from one counter. The increment is itself an access and appears in the stream: the n-th
//! store to the counter marks the position of event n among the accesses. A resizing call also increments a second
//! counter when it begins. Accesses between that increment and the event's number are the allocator's copy, not the
//! program's.
//!
//! The tool observes only accesses to 64 KiB granules of the address space that are marked in its table. So the
//! recorder marks the granules of each block.

use core::arch::asm;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::clock::ticks_in_order;
use crate::encoding::{NUMBER_SHIFT, Record};

/// valgrind's own request: returns the number of nested valgrinds that run the program.
const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// The tool's request: starts a stream with the given path; returns the tool's table.
const BEGIN: u64 = (b'H' as u64) << 24 | (b'K' as u64) << 16 | 1;
/// log2 of the bytes of a granule.
const GRANULE_LOG2: u32 = 16;
/// First address that the table does not cover.
const ADDRESSES_END: u64 = 1 << 47;

/// The process's counters; null unless events are numbered.
static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new(null_mut());
/// The tool's table, one bit per granule; null if another valgrind tool runs the program.
static TABLE: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// The counters of a process, initially 0.
#[repr(C)]
pub struct Counters {
    /// Numbers events, from 1.
    events: AtomicU64,
    /// Counts resizing calls when they begin.
    resizes: AtomicU64,
}

/// Whether the process runs in valgrind.
pub fn in_valgrind() -> bool {
    request([RUNNING_ON_VALGRIND, 0]) != 0
}

/// Starts numbering events with `counters`. The tool writes to `stream`.
pub fn begin(counters: &'static Counters, stream: &CStr) {
    let table = request([BEGIN, stream.as_ptr() as u64]);
    TABLE.store(table as *mut AtomicU8, Ordering::SeqCst);
    let counters = (&raw const *counters).cast_mut();
    mark(counters as u64, size_of::<Counters>() as u64);
    COUNTERS.store(counters, Ordering::SeqCst);
}

/// Whether events are numbered.
pub fn is_on() -> bool {
    counters().is_some()
}

fn counters() -> Option<&'static Counters> {
    // SAFETY: null, or the counters, which stay mapped as long as the process.
    unsafe { COUNTERS.load(Ordering::Relaxed).as_ref() }
}

/// The start of a resizing call: the last event number, or the time. If the block stays in place, this is the event's
/// only position in the order. So it must come after the block's allocation, which may be in another thread.
#[inline]
pub fn resize_begins() -> u64 {
    let Some(counters) = counters() else {
        return ticks_in_order();
    };
    counters.resizes.fetch_add(1, Ordering::SeqCst);
    counters.events.load(Ordering::SeqCst) << NUMBER_SHIFT
}

/// The record, with a number instead of its time if events are numbered.
pub fn numbered(record: &Record) -> Record {
    let Some(counters) = counters() else {
        return *record;
    };
    mark(record.address, record.size);
    let ticks = (counters.events.fetch_add(1, Ordering::SeqCst) + 1) << NUMBER_SHIFT;
    let begun = if record.old == 0 { ticks } else { record.ticks.min(ticks) };
    Record { ticks: begun, duration: ticks - begun, ..*record }
}

/// Marks the granules of a block in the tool's table.
fn mark(address: u64, bytes: u64) {
    let table = TABLE.load(Ordering::Relaxed);
    let end = address.saturating_add(bytes.max(1)).min(ADDRESSES_END);
    if table.is_null() || address == 0 || address >= end {
        return;
    }
    for granule in (address >> GRANULE_LOG2)..=((end - 1) >> GRANULE_LOG2) {
        // SAFETY: the tool's table has a bit for each granule below ADDRESSES_END, and is never freed.
        let byte = unsafe { &*table.add((granule / 8) as usize) };
        let bit = 1 << (granule % 8);
        if byte.load(Ordering::Relaxed) & bit == 0 {
            byte.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Sends valgrind a request. On a real processor the instructions do nothing, and the answer is 0.
fn request(words: [u64; 2]) -> u64 {
    let words = [words[0], words[1], 0, 0, 0, 0];
    let mut answer = 0_u64;
    // SAFETY: the rotations sum to 128 bits, so they change only flags. valgrind recognises the pattern and reads
    // `words`.
    unsafe {
        asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

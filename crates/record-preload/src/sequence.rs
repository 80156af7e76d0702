//! The order of events under `--touch full`, where the program runs in valgrind and a tool of ours there writes down
//! every access to the heap.
//!
//! Each event takes a number from one counter. The increment is an access of the program like any other, so it stands in
//! the tool's stream: the n-th store to the counter is the place of event n among all accesses. A resizing call also
//! counts when it begins: from there to its number the allocator copies, which is no access of the program's.
//!
//! The tool sees 64 KiB granules of the address space only once they are marked in its table; so it is told of each block.

use core::arch::asm;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use crate::clock::ticks_in_order;
use crate::encoding::{NUMBER_SHIFT, Record};

/// valgrind's own request: on how many valgrinds do I run?
const RUNNING_ON_VALGRIND: u64 = 0x1001;
/// Our tool's request: the path of the stream to begin; answers with its table.
const BEGIN: u64 = (b'H' as u64) << 24 | (b'K' as u64) << 16 | 1;
/// log2 of the bytes of a granule.
const GRANULE_LOG2: u32 = 16;
/// The table covers the addresses below this.
const ADDRESSES_END: u64 = 1 << 47;

/// The process's counters; null unless events are numbered.
static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new(null_mut());
/// The tool's table, a bit per granule; null where another tool runs, which sees everything.
static TABLE: AtomicPtr<AtomicU8> = AtomicPtr::new(null_mut());

/// The counters of a process, all zero at first.
#[repr(C)]
pub struct Counters {
    /// Numbers events, from 1.
    events: AtomicU64,
    /// Counts resizing calls begun.
    resizes: AtomicU64,
}

/// Whether the process runs in valgrind.
pub fn in_valgrind() -> bool {
    request([RUNNING_ON_VALGRIND, 0]) != 0
}

/// Numbers events with `counters` from here on. `stream` is where the tool shall write.
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

/// The stamp with which a resizing call begins: the last number, or the time. Where the block stays in place this is its only
/// place in the order, so it must come behind the block's birth in another thread.
#[inline]
pub fn resize_begins() -> u64 {
    let Some(counters) = counters() else {
        return ticks_in_order();
    };
    counters.resizes.fetch_add(1, Ordering::SeqCst);
    counters.events.load(Ordering::SeqCst) << NUMBER_SHIFT
}

/// The record with its number in place of the time, where events are numbered.
pub fn numbered(record: &Record) -> Record {
    let Some(counters) = counters() else {
        return *record;
    };
    mark(record.address, record.size);
    let ticks = (counters.events.fetch_add(1, Ordering::SeqCst) + 1) << NUMBER_SHIFT;
    let begun = if record.old == 0 { ticks } else { record.ticks.min(ticks) };
    Record { ticks: begun, duration: ticks - begun, ..*record }
}

/// Has the tool see the granules of a block.
fn mark(address: u64, bytes: u64) {
    let table = TABLE.load(Ordering::Relaxed);
    let end = address.saturating_add(bytes.max(1)).min(ADDRESSES_END);
    if table.is_null() || address == 0 || address >= end {
        return;
    }
    for granule in (address >> GRANULE_LOG2)..=((end - 1) >> GRANULE_LOG2) {
        // SAFETY: the tool's table has a bit for each granule below ADDRESSES_END, and it stays.
        let byte = unsafe { &*table.add((granule / 8) as usize) };
        let bit = 1 << (granule % 8);
        if byte.load(Ordering::Relaxed) & bit == 0 {
            byte.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Asks valgrind: the instructions do nothing on a real processor, and the answer is then 0.
fn request(words: [u64; 2]) -> u64 {
    let words = [words[0], words[1], 0, 0, 0, 0];
    let mut answer = 0_u64;
    // SAFETY: rotations by 128 bits in all change nothing but flags; valgrind, which knows the pattern, reads `words`.
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

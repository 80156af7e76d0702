//! After one full pass and a rewind, reading allocates nothing and takes no page fault.
//!
//! This is the only test of its binary, as the allocations of the whole process are counted.

#[path = "it/support/mod.rs"]
mod support;

use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Random, random_events, write_trace};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Minor faults of this thread: field 10 of its stat file, read without allocating.
fn minor_faults() -> Option<u64> {
    let mut bytes = [0; 1024];
    let length = File::open("/proc/thread-self/stat").ok()?.read(&mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let after_name = &text[text.rfind(')')? + 2..];
    after_name.split(' ').nth(7)?.parse().ok()
}

fn pass(reader: &mut TraceReader) -> u64 {
    let mut events = 0;
    while let Some(batch) = reader.next_batch().unwrap() {
        events += batch.len() as u64;
    }
    events
}

#[test]
fn the_second_pass_has_no_allocations_and_no_page_faults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hkt");
    let events = random_events(&mut Random::new(5), 100_000);
    write_trace(&path, &events);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(pass(&mut reader), 100_000);
    reader.rewind().unwrap();
    minor_faults(); // causes the faults of its own first touches
    let (allocations, faults) = (ALLOCATIONS.load(Ordering::Relaxed), minor_faults());
    let events = pass(&mut reader);
    let faults_after = minor_faults();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), allocations, "allocations in the second pass");
    assert_eq!(events, 100_000);
    match (faults, faults_after) {
        (Some(before), Some(after)) => assert_eq!(after - before, 0, "page faults in the second pass"),
        _ => eprintln!("skipped: /proc/thread-self/stat cannot be read"),
    }
}

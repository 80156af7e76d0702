//! Ordered native runs on a kernel without page-table scans. They measure only totals of the process, but no pages and
//! no kinds of installs.

use hksim_policy::PreparedPolicy;
use std::io;

use hksim_engine::{Fallbacks, TouchRule};
use hksim_policy::Memory;
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Event;

use crate::calls::Counted;
use crate::error::ChildError;
use crate::malloc::watch_process;
use crate::native::{Native, lock_heap, open, ready, step};
use crate::null::Null;
use crate::prefault::{MeasuredHeap, prefault};
use crate::process::ProcessMemory;
use crate::protocol::{MeasuredReport, Report};
use crate::result::{Control, Mark, Replayed, Skipped};
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver, drive};

struct Coarse {
    heap: Native<Counted>,
    memory: ProcessMemory,
    marks: Vec<Mark>,
}

impl WindowDriver for Coarse {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn lock(&mut self, lock: MemoryLock) {
        let _ = lock_heap(&self.heap, lock);
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        self.marks.push(self.memory.mark(events));
        Ok(())
    }

    fn base(&self) -> Option<u64> {
        Some(self.heap.allocator().mem.base().as_ptr() as u64)
    }
}

/// The control run.
pub(crate) fn control(trace: &mut PreparedTrace, heap: MeasuredHeap<'_>) -> Result<Report, ChildError> {
    let (memory, _) = watch_process()?;
    let mut null = Null::new(trace, memory);
    prefault(heap);
    let before = Usage::now();
    null.watch_mut().begin();
    drive(trace, &mut null)?;
    let traps = null.watch_mut().end();
    let usage = Usage::now().since(&before);
    std::mem::forget(null); // not dropped, as in the other runs, whose system calls are compared with this run's
    Ok(Report::Control(Control::new(&usage, traps)))
}

/// The measured run. `why` is the reason why page tables cannot be scanned.
pub(crate) fn measured(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    why: &io::Error,
) -> Result<Report, ChildError> {
    let (mut memory, mut skipped) = watch_process()?;
    let ready = ready(&plan, trace);
    let marks = Vec::with_capacity(trace.stops.len());
    ProcessMemory::reset_peak();
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    memory.begin();
    let heap = open(plan, Counted::default(), ready, touch, |_| {})?;
    let mut coarse = Coarse { heap, memory, marks };
    let driven = drive(trace, &mut coarse)?;
    let faults = Usage::now().since(&before).faults;
    let traps = coarse.memory.end();
    let reason = format!("page tables cannot be scanned: {why} (PAGEMAP_SCAN needs Linux 6.7)");
    skipped.push(Skipped::new("installs, marks", reason));
    let mut replayed = Replayed {
        base_address: Some(coarse.heap.allocator().mem.base().as_ptr() as u64),
        faults: Some(faults),
        traps,
        os_calls: Some(coarse.heap.allocator().mem.os().calls()),
        os_calls_failed: Some(coarse.heap.allocator().mem.os().failed()),
        fallbacks: Some(Fallbacks::of(coarse.heap.allocator().mem.pool())),
        events: driven.events,
        requests_failed: coarse.heap.failed(),
        placement_digest: Some(format!("{:016x}", coarse.heap.placement())),
        skipped,
        ..Replayed::default()
    };
    replayed.note_process(&coarse.memory);
    Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: coarse.marks })))
}

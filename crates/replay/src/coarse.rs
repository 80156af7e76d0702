//! Ordered runs on a kernel without page-table scans. They measure only totals of the process, but no pages and no kinds
//! of installs.

use std::io;

use hksim_engine::{Driver, Heaps};
use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Event;

use crate::calls::Counted;
use crate::error::ChildError;
use crate::malloc::watch_process;
use crate::null;
use crate::ordered::step;
use crate::prefault::{MeasuredHeap, prefault};
use crate::process::ProcessMemory;
use crate::protocol::{MeasuredReport, Report};
use crate::replayable::Replayable;
use crate::result::{Mark, Replayed, Skipped};
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver, drive};

struct Coarse<A: Heaps> {
    heap: Driver<A>,
    memory: ProcessMemory,
    marks: Vec<Mark>,
}

impl<A: Replayable<Counted>> WindowDriver for Coarse<A> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        step(&mut self.heap, event, number)
    }

    fn lock(&mut self, lock: MemoryLock) {
        let _ = self.heap.allocator().lock_as(lock);
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        self.marks.push(self.memory.mark(events));
        Ok(())
    }

    fn base(&self) -> Option<u64> {
        Some(self.heap.allocator().addresses().start)
    }
}

/// The control run of one on `A`.
pub(crate) fn control<A: Heaps>(trace: &mut PreparedTrace, heap: MeasuredHeap<'_>) -> Result<Report, ChildError> {
    let (memory, _) = watch_process()?;
    null::control::<A, _>(trace, memory, heap)
}

/// The measured run on the allocator that `open` creates. `why` is the reason why page tables cannot be scanned.
pub(crate) fn measured<A: Replayable<Counted>>(
    trace: &mut PreparedTrace,
    why: &io::Error,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let (mut memory, mut skipped) = watch_process()?;
    let marks = Vec::with_capacity(trace.stops.len());
    ProcessMemory::reset_peak();
    prefault(MeasuredHeap::Reservation);
    let before = Usage::now();
    memory.begin();
    let mut coarse = Coarse { heap: open()?, memory, marks };
    let driven = drive(trace, &mut coarse)?;
    let faults = Usage::now().since(&before).faults;
    let traps = coarse.memory.end();
    let reason = format!("page tables cannot be scanned: {why} (PAGEMAP_SCAN needs Linux 6.7)");
    skipped.push(Skipped::new("installs, marks", reason));
    let mut replayed = Replayed {
        faults: Some(faults),
        traps,
        os_calls: Some(coarse.heap.allocator().with_os(Counted::calls)),
        os_calls_failed: Some(coarse.heap.allocator().with_os(Counted::failed)),
        events: driven.events,
        requests_failed: coarse.heap.failed(),
        placement_digest: Some(format!("{:016x}", coarse.heap.placement())),
        skipped,
        ..Replayed::default()
    };
    coarse.heap.allocator().note_own(&mut replayed);
    replayed.note_process(&coarse.memory);
    Ok(Report::Measured(Box::new(MeasuredReport { replayed, marks: coarse.marks, start: None })))
}

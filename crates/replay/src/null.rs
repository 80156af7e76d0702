//! The control run, which has no heap.

use hksim_engine::{Heaps, Tables};
use hksim_trace::event::Event;

use crate::error::ChildError;
use crate::ordered::tables;
use crate::prefault::{MeasuredHeap, prefault};
use crate::protocol::{ControlReport, Report};
use crate::result::Control;
use crate::usage::Usage;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver, drive};

/// Reads each event, but performs nothing. It has the observer and the tables of a heap's driver, so that a control run
/// makes the same system calls as a measured run, except those of the heap.
pub(crate) struct Null<A: Heaps, W> {
    _tables: Tables<A>,
    watch: W,
}

/// A control run with the observer of a measured run on `A`.
pub(crate) fn control<A: Heaps, W: WindowObserver>(
    trace: &mut PreparedTrace,
    watch: W,
    heap: MeasuredHeap<'_>,
) -> Result<Report, ChildError> {
    let mut null = Null::<A, W> { _tables: tables(trace), watch };
    prefault(heap);
    let before = Usage::now();
    null.watch.begin();
    drive(trace, &mut null)?;
    let traps = null.watch.end();
    let usage = Usage::now().since(&before);
    let start = null.watch.start();
    std::mem::forget(null); // not dropped, as in the other runs, whose system calls are compared with this run's
    Ok(Report::Control(ControlReport { control: Control::new(&usage, traps), start }))
}

impl<A: Heaps, W: WindowObserver> WindowDriver for Null<A, W> {
    #[inline]
    fn step(&mut self, event: &Event, _number: u64) -> Result<(), ChildError> {
        std::hint::black_box(event);
        Ok(())
    }

    fn piece_done(&mut self, _events: usize, _cpu_ns: u64) {
        self.watch.drain_traps_if_half_full();
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        std::hint::black_box(self.watch.mark(events));
        Ok(())
    }
}

//! The driver of a control run, which has no heap.

use hksim_engine::Tables;
use hksim_trace::event::Event;

use crate::calls::Counted;
use crate::error::ChildError;
use crate::ordered::tables;
use crate::replayable::SuperSlabs;
use crate::window::{PreparedTrace, WindowDriver, WindowObserver};

/// Reads each event, but performs nothing. It has the observer and the tables of a heap's driver, so that a control run
/// makes the same system calls as a measured run, except those of the heap.
pub(crate) struct Null<W> {
    _tables: Tables<SuperSlabs<Counted>>,
    watch: W,
}

impl<W: WindowObserver> Null<W> {
    /// A driver for a trace, with the observer of a measured run.
    pub(crate) fn new(trace: &PreparedTrace, watch: W) -> Null<W> {
        Null { _tables: tables(trace), watch }
    }

    /// The observer.
    pub(crate) fn watch_mut(&mut self) -> &mut W {
        &mut self.watch
    }
}

impl<W: WindowObserver> WindowDriver for Null<W> {
    #[inline]
    fn step(&mut self, event: &Event, _number: u64) -> Result<(), ChildError> {
        std::hint::black_box(event);
        Ok(())
    }

    fn batch_done(&mut self) {
        self.watch.drain_traps_if_half_full();
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        std::hint::black_box(self.watch.mark(events));
        Ok(())
    }
}

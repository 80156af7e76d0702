//! No heap: what a control run drives.

use hksim_engine::Tables;
use hksim_native::MmapMemory;
use hksim_trace::event::Event;

use crate::calls::Counted;
use crate::error::ChildError;
use crate::native::tables;
use crate::window::{Prepared, Step, Watch};

/// Looks at each event, and is watched like a heap. It has the tables that a heap's driver has, so that a control run makes
/// the very calls of a run but those of its heap.
pub(crate) struct Null<W> {
    _tables: Tables<MmapMemory<Counted>>,
    watch: W,
}

impl<W: Watch> Null<W> {
    /// For a trace; with the watch that a measured run has.
    pub(crate) fn new(trace: &Prepared, watch: W) -> Null<W> {
        Null { _tables: tables(trace), watch }
    }

    /// The watch.
    pub(crate) fn watch_mut(&mut self) -> &mut W {
        &mut self.watch
    }
}

impl<W: Watch> Step for Null<W> {
    #[inline]
    fn step(&mut self, event: &Event, _number: u64) -> Result<(), ChildError> {
        std::hint::black_box(event);
        Ok(())
    }

    fn batch_done(&mut self) {
        self.watch.relieve();
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        std::hint::black_box(self.watch.mark(events));
        Ok(())
    }
}

//! No heap: what a control run drives.

use hksim_trace::event::{Event, Op};
use hksim_trace::source::EventSource;

use crate::error::ChildError;
use crate::resident::Resident;
use crate::window::{Prepared, Step, Watch};

/// Notes the size of each object, and is watched like a heap.
pub(crate) struct Null<W> {
    objects: Resident<u64>,
    watch: W,
}

impl<W: Watch> Null<W> {
    /// For a trace; with the watch that a measured run has.
    pub(crate) fn new(trace: &Prepared, watch: W) -> Result<Null<W>, ChildError> {
        let objects = Resident::zeroed(trace.reader.summary().objects_peak as usize);
        Ok(Null { objects: objects.map_err(ChildError::system("make tables"))?, watch })
    }

    /// The watch.
    pub(crate) fn watch_mut(&mut self) -> &mut W {
        &mut self.watch
    }
}

impl<W: Watch> Step for Null<W> {
    #[inline]
    fn step(&mut self, event: &Event, _number: u64) -> Result<(), ChildError> {
        match event.op {
            Op::Alloc { object, size, .. }
            | Op::Realloc { object, size, .. }
            | Op::ReallocUnknown { object, size, .. } => {
                self.objects[object.0 as usize] = size;
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => self.objects[object.0 as usize] = 0,
            _ => {}
        }
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

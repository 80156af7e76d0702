//! No heap: what a control run drives.

use hksim_trace::event::{Event, Op};
use hksim_trace::source::EventSource;

use crate::error::ChildError;
use crate::observer::Observer;
use crate::resident::Resident;
use crate::window::{Prepared, Step};

/// Notes the size of each object, and is watched like a heap.
pub(crate) struct Null {
    objects: Resident<u64>,
    observer: Option<Observer>,
}

impl Null {
    /// For a trace; with the observer that a measured run has.
    pub(crate) fn new(trace: &Prepared, observer: Option<Observer>) -> Result<Null, ChildError> {
        let objects = Resident::zeroed(trace.reader.summary().objects_peak as usize);
        Ok(Null { objects: objects.map_err(ChildError::system("make tables"))?, observer })
    }

    /// The observer.
    pub(crate) fn observer_mut(&mut self) -> Option<&mut Observer> {
        self.observer.as_mut()
    }
}

impl Step for Null {
    #[inline]
    fn step(&mut self, event: &Event, _number: u64) -> Result<(), ChildError> {
        match event.op {
            Op::Alloc { object, size, .. } | Op::Realloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                self.objects[object.0 as usize] = size;
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => self.objects[object.0 as usize] = 0,
            _ => {}
        }
        Ok(())
    }

    fn batch_done(&mut self) {
        self.observer.iter_mut().for_each(Observer::relieve);
    }

    fn stop(&mut self, events: u64) -> Result<(), ChildError> {
        if let Some(observer) = &mut self.observer {
            std::hint::black_box(observer.mark(events, |_| {}));
        }
        Ok(())
    }
}

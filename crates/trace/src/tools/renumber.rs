//! New object and thread ids for events that were dropped from, repeated in or merged into a stream.

use crate::error::TraceError;
use crate::event::{Event, ObjectId, ThreadId};
use crate::ids::ObjectIds;

/// Numbers the objects and threads of one or several sources as one stream.
#[derive(Debug, Default)]
pub(super) struct Renumber {
    ids: ObjectIds,
    threads: u32,
    sources: Vec<Numbering>,
}

/// Ids of one source, by its own ids.
#[derive(Debug, Default)]
struct Numbering {
    objects: Vec<Option<ObjectId>>,
    threads: Vec<Option<ThreadId>>,
}

impl Renumber {
    /// The event with its new ids; `None` if its object has not been born here.
    ///
    /// # Errors
    /// More objects are live than ids exist.
    pub(super) fn event(&mut self, source: usize, event: Event) -> Result<Option<Event>, TraceError> {
        if self.sources.len() <= source {
            self.sources.resize_with(source + 1, Numbering::default);
        }
        let numbering = &mut self.sources[source];
        let op = match event.op.object() {
            None => event.op,
            Some(object) => {
                let slot = slot(&mut numbering.objects, object.0);
                if event.op.creates_object() {
                    // An edit that repeats a birth has lost the object before; it stays live for good.
                    *slot = Some(self.ids.allocate().ok_or(TraceError::TooManyObjects)?);
                }
                let Some(renamed) = *slot else { return Ok(None) };
                if event.op.frees_object() {
                    self.ids.release(renamed);
                    *slot = None;
                }
                event.op.with_object(renamed)
            }
        };
        let thread = *slot(&mut numbering.threads, event.thread.0).get_or_insert_with(|| {
            self.threads += 1;
            ThreadId(self.threads - 1)
        });
        Ok(Some(Event { op, thread, ..event }))
    }

    /// Most objects live at once, and threads, so far.
    pub(super) fn totals(&self) -> (u32, u32) {
        (self.ids.peak(), self.threads)
    }
}

/// The entry of an id; ids of a source are dense, so the table is as long as the source's own would be.
fn slot<T>(table: &mut Vec<Option<T>>, id: u32) -> &mut Option<T> {
    let at = id as usize;
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    &mut table[at]
}

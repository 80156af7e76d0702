//! Assigns new object and thread ids after events were dropped, repeated or merged.

use crate::error::TraceError;
use crate::event::{Event, ObjectId, ThreadId};
use crate::ids::ObjectIds;

/// Assigns ids to the objects and threads of one or more sources that are combined into one stream.
#[derive(Debug, Default)]
pub(super) struct Renumber {
    ids: ObjectIds,
    threads: u32,
    sources: Vec<Numbering>,
}

/// The new ids of one source, indexed by old id.
#[derive(Debug, Default)]
struct Numbering {
    objects: Vec<Option<ObjectId>>,
    threads: Vec<Option<ThreadId>>,
}

impl Renumber {
    /// The event with its new ids; `None` if the allocation of its object was dropped.
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
                    // If an edit repeats an allocation, the previous object stays live to the end.
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

    /// Peak number of live objects, and number of threads, so far.
    pub(super) fn totals(&self) -> (u32, u32) {
        (self.ids.peak(), self.threads)
    }
}

/// The entry of an id. Ids of a source are dense, so the table stays small.
fn slot<T>(table: &mut Vec<Option<T>>, id: u32) -> &mut Option<T> {
    let at = id as usize;
    if table.len() <= at {
        table.resize_with(at + 1, || None);
    }
    &mut table[at]
}

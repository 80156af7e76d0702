//! Writes a trace file.

use super::appender::Appender;
use crate::error::TraceError;
use crate::event::{Event, Op};
use crate::header::{Footer, Header, Summary};
use crate::ids::ObjectIds;
use std::path::Path;

/// A `.hkt` file being written. Without [`TraceWriter::finish`], readers treat it as truncated.
///
/// Ids are checked: an allocation must have the next id of [`ObjectIds`], and every other id must be live.
pub struct TraceWriter {
    appender: Appender,
    ids: ObjectIds,
}

impl TraceWriter {
    /// Creates or replaces the file and writes its header.
    ///
    /// # Errors
    /// The file cannot be written, or the header is too long.
    pub fn create(path: &Path, header: &Header) -> Result<Self, TraceError> {
        Ok(TraceWriter { appender: Appender::create(path, header)?, ids: ObjectIds::new() })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.appender.path
    }

    /// Events appended so far.
    pub fn events(&self) -> u64 {
        self.appender.events
    }

    /// Appends an event.
    ///
    /// # Errors
    /// - The event cannot follow the previous ones: wrong or freed object, decreasing time, gap in the thread ids, or a
    ///   value out
    ///   of range. The event is not written.
    /// - The file cannot be written. This error may be returned tens of thousands of events late.
    #[inline(always)]
    pub fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        let &Appender { time_ns, threads, .. } = &self.appender;
        let thread = event.thread.0;
        let follows = event.time_ns >= time_ns && thread <= threads && thread != u32::MAX;
        if !follows || event.flaw().is_some() || !self.follow_object(&event.op) {
            return Err(self.refusal(event));
        }
        self.appender.push(event)
    }

    /// Waits until all full chunks are written, and ends the thread that writes them. The next full chunk starts a new
    /// thread. For callers that pause or that change their scheduling priority.
    ///
    /// # Errors
    /// A chunk could not be written.
    pub fn settle(&mut self) -> Result<(), TraceError> {
        self.appender.settle()
    }

    /// Writes the pending events and the footer. Returns the size of the trace.
    ///
    /// # Errors
    /// The file cannot be written, or the footer is too long.
    pub fn finish(self, footer: &Footer) -> Result<Summary, TraceError> {
        self.appender.finish(footer)
    }

    /// Updates the ids for the event. Returns false and changes nothing if its object is wrong.
    #[inline(always)]
    fn follow_object(&mut self, op: &Op) -> bool {
        match *op {
            Op::Alloc { object, .. } | Op::ReallocUnknown { object, .. } => {
                object == self.ids.upcoming() && self.ids.allocate().is_some()
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => self.ids.release(object),
            _ => op.object().is_none_or(|object| self.ids.is_live(object)),
        }
    }

    /// The error for an event that cannot follow the previous ones.
    #[cold]
    fn refusal(&self, event: &Event) -> TraceError {
        let &Appender { ref path, events: number, threads, time_ns: previous_ns, .. } = &self.appender;
        let path = path.clone();
        let &Event { time_ns, thread, .. } = event;
        if time_ns < previous_ns {
            return TraceError::TimeDecreases { path, event: number, time_ns, previous_ns };
        }
        if thread.0 > threads || thread.0 == u32::MAX {
            return TraceError::SparseThread { path, event: number, thread, threads };
        }
        if let Some(why) = event.flaw() {
            return TraceError::BadEvent { path, event: number, why };
        }
        match event.op.object() {
            Some(object) if !event.op.creates_object() => TraceError::DeadObject { path, event: number, object },
            Some(object) if object != self.ids.upcoming() => {
                TraceError::WrongObject { path, event: number, object, expected: self.ids.upcoming() }
            }
            _ => TraceError::TooManyObjects,
        }
    }
}

//! The events of the trace, beside the records of its replay.

use hksim_sim::explain::{INTERVALS, Origin};
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, ObjectId, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;
use hksim_trace::source::EventSource;

use crate::breakdown::{FaultKey, What};
use crate::current::{Current, Object};

/// The events, read as the records need them.
pub struct Events {
    reader: WithProfiles<TraceReader>,
    batch: Vec<Event>,
    at: usize,
    next_number: u64,
    current: Option<Current>,
    /// The name of the last mark.
    phase: Option<u32>,
    end_ns: u64,
}

impl Events {
    /// The events of a trace, from its start.
    pub fn new(reader: TraceReader) -> Events {
        let end_ns = reader.summary().duration_ns;
        let reader = WithProfiles::new(reader);
        Events { reader, batch: Vec::new(), at: 0, next_number: 0, current: None, phase: None, end_ns }
    }

    /// The index of the event after the current one.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The event that is performed.
    pub fn current(&self) -> Option<&Current> {
        self.current.as_ref()
    }

    /// The event that is performed.
    pub fn current_mut(&mut self) -> Option<&mut Current> {
        self.current.as_mut()
    }

    /// Ends the current event.
    pub fn take_current(&mut self) -> Option<Current> {
        self.current.take()
    }

    /// Begins the next event; `object` returns its object as it is before. Returns false at the end.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn begin_next(&mut self, object: impl Fn(ObjectId) -> Object) -> Result<bool, TraceError> {
        if self.at == self.batch.len() {
            self.batch.clear();
            self.at = 0;
            let Some(events) = self.reader.next_batch()? else { return Ok(false) };
            self.batch.extend_from_slice(events);
        }
        let event = self.batch[self.at];
        self.at += 1;
        if let Op::Mark { name } = event.op {
            self.phase = Some(name);
        }
        let before = event.op.object().map(object).unwrap_or_default();
        self.current = Some(Current::new(self.next_number, event, before));
        self.next_number += 1;
        Ok(true)
    }

    /// A fault of an event, with all its keys.
    pub fn key(&self, current: &Current, what: What) -> FaultKey {
        let interval = u128::from(current.event.time_ns) * INTERVALS as u128 / u128::from(self.end_ns.max(1));
        FaultKey {
            what,
            request_bytes: current.request_bytes,
            site: Origin::Trace(current.site),
            thread: Origin::Trace(current.event.thread.0),
            phase: self.phase,
            interval: (interval as usize).min(INTERVALS - 1),
        }
    }

    /// Times at the ends of the intervals, in nanoseconds.
    pub fn interval_ends_ns(&self) -> [u64; INTERVALS] {
        let part = |k: usize| u128::from(self.end_ns) * (k as u128 + 1) / INTERVALS as u128;
        std::array::from_fn(|k| part(k) as u64)
    }
}

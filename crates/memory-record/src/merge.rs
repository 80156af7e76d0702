//! Merges the rings of all processors, and the tracer's log, by time.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use hksim_linux_probe::perf;
use hksim_linux_probe::ring::{RECORD_SAMPLE, Ring};

use crate::call_log::CallLog;
use crate::record::{Record, Samples};
use crate::source::Events;

/// The rings, and the records taken from them that are still too young to be sorted.
pub struct Merger {
    rings: Vec<Ring>,
    events: Vec<OwnedFd>,
    samples: Samples,
    samples_taken: u64,
    log: Arc<CallLog>,
    /// For each ring; the last one is for the log.
    waiting: Vec<VecDeque<Record>>,
    bytes: Vec<u8>,
}

impl Merger {
    /// A merger of the rings of these events and of a log, which is empty if no program is traced.
    pub fn new(events: Events, log: Arc<CallLog>) -> Self {
        let Events { rings, samples, open, .. } = events;
        let waiting = vec![VecDeque::new(); rings.len() + 1];
        Self { rings, events: open, samples, samples_taken: 0, log, waiting, bytes: Vec::new() }
    }

    /// Records that did not fit into the rings so far, as the kernel counts them.
    pub fn lost(&self) -> u64 {
        perf::lost(&self.events, self.samples_taken)
    }

    /// Ends the events, and takes the records that are there.
    pub fn stop(&mut self) {
        self.events.iter().for_each(perf::disable);
        self.take_all();
    }

    /// Takes all records from the rings. Returns whether there were any.
    pub fn take_all(&mut self) -> bool {
        let mut found = false;
        for (ring, waiting) in self.rings.iter().zip(&mut self.waiting) {
            let (head, mut tail) = (ring.head(), ring.tail());
            found |= tail < head;
            while tail < head {
                let header = ring.header(tail);
                self.bytes.resize(header.bytes as usize, 0);
                ring.copy(tail, &mut self.bytes);
                self.samples_taken += u64::from(header.kind == RECORD_SAMPLE);
                waiting.extend(self.samples.parse(header, &self.bytes));
                tail += header.bytes;
            }
            ring.release(tail);
        }
        let logged = self.log.take();
        found |= !logged.is_empty();
        if let Some(waiting) = self.waiting.last_mut() {
            waiting.extend(logged);
        }
        found
    }

    /// The oldest record, if it is not later than `until_ns`. All rings and the log must have been read after `until_ns` passed.
    pub fn next_until(&mut self, until_ns: u64) -> Option<Record> {
        let fronts = self.waiting.iter().enumerate();
        let times = fronts.filter_map(|(index, waiting)| Some((waiting.front()?.time_ns, index)));
        let (time_ns, index) = times.min()?;
        if time_ns <= until_ns { self.waiting[index].pop_front() } else { None }
    }
}

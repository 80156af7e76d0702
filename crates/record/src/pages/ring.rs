//! Reads page faults from a ring of kernel events.

use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::perf;
use hksim_linux_probe::ring::{self, HEADER_BYTES, RECORD_SAMPLE};
use hksim_trace::event::Access;

use crate::pages::fault::Fault;
use crate::pages::perf::Layout;
use crate::touched::PAGE_BYTES;

/// Offset of a tracepoint's data. Before it come header, instruction, process and thread, time, address, and the data's
/// length.
const RAW_AT: usize = HEADER_BYTES + 4 * 8 + 4;
/// Bit of the processor's page-fault error code that is set for writes.
const ERROR_WRITE: u64 = 2;

/// A page fault of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessFault {
    /// The process.
    pub pid: u32,
    /// The fault.
    pub fault: Fault,
}

/// The events of one processor.
pub struct Ring {
    events: Vec<OwnedFd>,
    ring: ring::Ring,
    layout: Layout,
    record: Vec<u8>,
    samples_drained: u64,
}

impl Ring {
    /// Maps the ring of the first event, with `data_bytes` (a power of two) for records.
    ///
    /// # Errors
    /// The kernel does not grant the ring.
    pub fn map(events: Vec<OwnedFd>, data_bytes: usize, layout: Layout) -> io::Result<Self> {
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        let ring = ring::Ring::map(first, data_bytes)?;
        Ok(Self { events, ring, layout, record: Vec::new(), samples_drained: 0 })
    }

    /// The event that owns the ring, and the other events that must write to it.
    pub fn events(&self) -> (&OwnedFd, &[OwnedFd]) {
        // A ring always has at least one event.
        (&self.events[0], &self.events[1..])
    }

    /// Records that did not fit into the ring; exact after all have been drained.
    pub fn lost(&self) -> u64 {
        perf::lost(&self.events, self.samples_drained)
    }

    /// Removes records from the ring, in order, until the first fault later than `until_ns`, and passes the faults to
    /// `each`.
    pub fn drain(&mut self, until_ns: u64, mut each: impl FnMut(ProcessFault)) {
        let (head, mut tail) = (self.ring.head(), self.ring.tail());
        while tail < head {
            let header = self.ring.header(tail);
            let mut record = std::mem::take(&mut self.record);
            record.resize(header.bytes as usize, 0);
            self.ring.copy(tail, &mut record);
            let is_sample = header.kind == RECORD_SAMPLE;
            let read = is_sample.then(|| self.layout.read(&record)).flatten();
            self.record = record;
            match read {
                Some(ProcessFault { fault, .. }) if fault.time_ns > until_ns => break,
                Some(read) => each(read),
                None => {}
            }
            self.samples_drained += u64::from(is_sample);
            tail += header.bytes;
        }
        self.ring.release(tail);
    }
}

impl Layout {
    /// The fault of a sample.
    fn read(self, record: &[u8]) -> Option<ProcessFault> {
        let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let (ids, time_ns) = (word(HEADER_BYTES + 8)?, word(HEADER_BYTES + 16)?);
        let (instruction, address, access) = match self {
            Self::Software => (word(HEADER_BYTES)?, word(HEADER_BYTES + 24)?, None),
            Self::Tracepoint(point) => {
                let is_write = word(RAW_AT + point.error_at)? & ERROR_WRITE != 0;
                let access = if is_write { Access::Write } else { Access::Read };
                (word(RAW_AT + point.instruction_at)?, word(RAW_AT + point.address_at)?, Some(access))
            }
        };
        let fault = Fault { time_ns, page: address & !(PAGE_BYTES - 1), access, instruction, tid: (ids >> 32) as u32 };
        Some(ProcessFault { pid: ids as u32, fault })
    }
}

//! Reads page faults from a ring of kernel events.

use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::ring::{self, HEADER_BYTES, RECORD_LOST, RECORD_SAMPLE};
use hksim_trace::event::Access;

use crate::pages::fault::Fault;
use crate::pages::perf::Layout;
use crate::touched::PAGE_BYTES;

/// Offset of a tracepoint's data. Before it come header, instruction, process and thread, time, address, and the data's
/// length.
const RAW_AT: usize = HEADER_BYTES + 4 * 8 + 4;
/// Bit of the processor's page-fault error code that is set for writes.
const ERROR_WRITE: u64 = 2;

/// A record of the ring.
#[derive(Clone, Copy, Debug)]
pub enum Record {
    /// A page fault of a process.
    Fault {
        /// Its id.
        pid: u32,
        /// The fault.
        fault: Fault,
    },
    /// The number of records that did not fit into the ring.
    Lost(u64),
}

/// The events of one processor.
pub struct Ring {
    events: Vec<OwnedFd>,
    ring: ring::Ring,
    layout: Layout,
    record: Vec<u8>,
}

impl Ring {
    /// Maps the ring of the first event, with `data_bytes` (a power of two) for records.
    ///
    /// # Errors
    /// The kernel does not grant the ring.
    pub fn map(events: Vec<OwnedFd>, data_bytes: usize, layout: Layout) -> io::Result<Self> {
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        let ring = ring::Ring::map(first, data_bytes)?;
        Ok(Self { events, ring, layout, record: Vec::new() })
    }

    /// The event that owns the ring, and the other events that must write to it.
    pub fn events(&self) -> (&OwnedFd, &[OwnedFd]) {
        // A ring always has at least one event.
        (&self.events[0], &self.events[1..])
    }

    /// Removes records from the ring, in order, until the first one later than `until_ns`, and passes them to `each`.
    pub fn drain(&mut self, until_ns: u64, mut each: impl FnMut(Record)) {
        let (head, mut tail) = (self.ring.head(), self.ring.tail());
        while tail < head {
            let header = self.ring.header(tail);
            let mut record = std::mem::take(&mut self.record);
            record.resize(header.bytes as usize, 0);
            self.ring.copy(tail, &mut record);
            let said = self.layout.read(header.kind, &record);
            self.record = record;
            match said {
                Some(Record::Fault { fault, .. }) if fault.time_ns > until_ns => break,
                Some(said) => each(said),
                None => {}
            }
            tail += header.bytes;
        }
        self.ring.release(tail);
    }
}

impl Layout {
    fn read(self, kind: u32, record: &[u8]) -> Option<Record> {
        let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
        match kind {
            RECORD_LOST => return Some(Record::Lost(word(HEADER_BYTES + 8)?)),
            RECORD_SAMPLE => {}
            _ => return None,
        }
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
        Some(Record::Fault { pid: ids as u32, fault })
    }
}

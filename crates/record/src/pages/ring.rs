//! A ring of the kernel's events: its records, as page faults.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_trace::event::Access;

use crate::pages::fault::Fault;
use crate::pages::perf::Layout;
use crate::touched::PAGE_BYTES;

/// Offsets in the control page (`struct perf_event_mmap_page`).
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// Bytes of a record's header; then follow instruction, process and thread, time, address, and a tracepoint's data.
const HEADER_BYTES: usize = 8;
const RAW_AT: usize = HEADER_BYTES + 4 * 8 + 4;
/// Bit of the processor's error code: the access was a write.
const ERROR_WRITE: u64 = 2;

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub enum Record {
    /// A page fault of a process.
    Fault {
        /// Its id.
        pid: u32,
        /// The fault.
        fault: Fault,
    },
    /// Records that had no room.
    Lost(u64),
}

/// The events of one processor.
pub struct Ring {
    events: Vec<OwnedFd>,
    map: *mut u8,
    data_bytes: usize,
    layout: Layout,
    record: Vec<u8>,
}

// SAFETY: the map belongs to this value alone; the kernel's side of it is made for another thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of the first event, with `data_bytes` (a power of two) for records.
    ///
    /// # Errors
    /// The kernel grants no such ring.
    pub fn map(events: Vec<OwnedFd>, data_bytes: usize, layout: Layout) -> io::Result<Self> {
        let first = events.first().ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, bytes) = (libc::PROT_READ | libc::PROT_WRITE, PAGE_BYTES as usize + data_bytes);
        // SAFETY: a new map of the event's ring.
        let map =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, first.as_raw_fd(), 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { events, map: map.cast(), data_bytes, layout, record: Vec::new() })
    }

    /// The event whose ring it is, and those that shall write to it too.
    pub fn events(&self) -> (&OwnedFd, &[OwnedFd]) {
        // A ring is never made without an event.
        (&self.events[0], &self.events[1..])
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the ring's control page, which the kernel shares.
        unsafe { &*self.map.add(at).cast::<AtomicU64>() }
    }

    /// Takes records out of the ring, in order, up to the first later than `until_ns`.
    pub fn drain(&mut self, until_ns: u64, mut each: impl FnMut(Record)) {
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.word(TAIL_AT).load(Ordering::Relaxed);
        while tail < head {
            let mut header = [0; HEADER_BYTES];
            self.copy(tail, &mut header);
            let header = u64::from_ne_bytes(header);
            let bytes = (header >> 48).max(HEADER_BYTES as u64);
            let mut record = std::mem::take(&mut self.record);
            record.resize(bytes as usize, 0);
            self.copy(tail, &mut record);
            let said = self.layout.read(header as u32, &record);
            self.record = record;
            match said {
                Some(Record::Fault { fault, .. }) if fault.time_ns > until_ns => break,
                Some(said) => each(said),
                None => {}
            }
            tail += bytes;
        }
        self.word(TAIL_AT).store(tail, Ordering::Release);
    }

    /// Copies bytes of the ring from a position on, around its end.
    fn copy(&self, position: u64, into: &mut [u8]) {
        let start = position as usize & (self.data_bytes - 1);
        let first = into.len().min(self.data_bytes - start);
        // SAFETY: both parts lie inside the ring's data, which begins behind the control page; no record is longer than it.
        unsafe {
            let data = self.map.add(PAGE_BYTES as usize);
            data.add(start).copy_to_nonoverlapping(into.as_mut_ptr(), first);
            data.copy_to_nonoverlapping(into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the map is this value's own.
        unsafe { libc::munmap(self.map.cast(), PAGE_BYTES as usize + self.data_bytes) };
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

//! Probes on functions: the kernel's events, with one ring for each processor.
//!
//! The events are those of all processes, since events of a thread cannot be inherited by the threads that it starts
//! (`hksim_linux_probe::uprobe`). So other processes that execute the same file are slowed, too.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::perf::{
    self, FLAG_COMM, FLAG_COMM_EXEC, FLAG_DISABLED, FLAG_SAMPLE_ID_ALL, FLAG_TASK, FLAG_USE_CLOCKID, Request,
    SOFTWARE_DUMMY, TYPE_SOFTWARE,
};
use hksim_linux_probe::processor;
use hksim_linux_probe::ring::{self, HEADER_BYTES, RECORD_SAMPLE, Ring};
use hksim_linux_probe::uprobe::{At, Source};
use libc::c_int;

use super::samples::{
    AT_RETURN, COMMON, ENTRY_REGISTERS, ENTRY_STACK_BYTES, Event, Meaning, RETURN_REGISTERS, RETURN_STACK_BYTES,
    WITH_STACK, event_of,
};

/// Events of all processes.
const ALL: c_int = -1;
/// Data bytes of all rings together, and of one ring: powers of two.
const RINGS_BYTES_MAX: usize = 256 << 20;
const RING_BYTES_MAX: usize = 32 << 20;
const RING_BYTES_MIN: usize = 64 << 10;
/// Flags of all events.
const FLAGS: u64 = FLAG_USE_CLOCKID | FLAG_SAMPLE_ID_ALL | FLAG_DISABLED;

/// A function to probe.
#[derive(Clone, Debug)]
pub struct Place {
    /// A path of its file that this process can open.
    pub file: CString,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// What is read at its return.
    pub at_return: AtReturn,
}

/// What is read when a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtReturn {
    /// Nothing: no probe there.
    Nothing,
    /// The result.
    Result,
    /// The result, and the stack, where the function may have stored an address.
    Stack,
}

/// The records of one processor.
struct ProcessorRing {
    ring: Ring,
    /// The first one has the ring. Then come those of returns, then those of entries.
    events: Vec<OwnedFd>,
    samples_drained: u64,
}

/// Open probes. They end when this value is dropped.
pub struct Probes {
    rings: Vec<ProcessorRing>,
    meanings: HashMap<u64, Meaning>,
    record: Vec<u8>,
    /// Events that are read and may be preceded by others, in order of time.
    pending: Vec<Event>,
}

impl Probes {
    /// Opens the probes; none is enabled yet.
    ///
    /// # Errors
    /// The kernel's error, and the index of the function if it is about one.
    pub fn open(source: Source, places: &[Place]) -> Result<Self, (io::Error, Option<usize>)> {
        let processors = processor::online();
        let share = (RINGS_BYTES_MAX / processors.len().max(1)).next_power_of_two() / 2;
        let ring_bytes = share.clamp(RING_BYTES_MIN, RING_BYTES_MAX);
        let mut probes = Self { rings: Vec::new(), meanings: HashMap::new(), record: Vec::new(), pending: Vec::new() };
        for processor in processors {
            let first = open_processes(processor).map_err(|why| (why, None))?;
            let ring = ring::largest(RING_BYTES_MIN..=ring_bytes, |bytes| Ring::map(&first, bytes));
            let mut of_processor =
                ProcessorRing { ring: ring.map_err(|why| (why, None))?, events: vec![first], samples_drained: 0 };
            for (index, place) in places.iter().enumerate() {
                probes.add(&mut of_processor, (source, processor), place, index).map_err(|why| (why, Some(index)))?;
            }
            probes.rings.push(of_processor);
        }
        Ok(probes)
    }

    /// Opens the probes of a function on one processor.
    fn add(
        &mut self,
        to: &mut ProcessorRing,
        (source, processor): (Source, c_int),
        place: &Place,
        index: usize,
    ) -> io::Result<()> {
        let entry = entry_request();
        let back = return_request();
        let back = match place.at_return {
            AtReturn::Nothing => None,
            AtReturn::Result => Some(back),
            AtReturn::Stack => Some(Request { sample_type: WITH_STACK, stack_bytes: RETURN_STACK_BYTES, ..back }),
        };
        let back = back.map(|request| (At::Return, request, Meaning::Return(index)));
        for (at, request, meaning) in [(At::Instruction, entry, Meaning::Entry(index))].into_iter().chain(back) {
            let event = source.open((&place.file, place.offset), at, ALL, Some(processor), &request)?;
            perf::set_output(&event, &to.events[0])?;
            self.meanings.insert(perf::number_of(&event)?, meaning);
            let place = if at == At::Return { 1 } else { to.events.len() };
            to.events.insert(place, event);
        }
        Ok(())
    }

    /// Begins the events, each on all processors before the next. Those of processes come first, so that no child is
    /// missed. Entries come last, so that the return of each call whose entry is seen is seen, too.
    pub fn enable(&self) {
        let events_max = self.rings.iter().map(|ring| ring.events.len()).max().unwrap_or(0);
        for index in 0..events_max {
            self.rings.iter().filter_map(|ring| ring.events.get(index)).for_each(perf::enable);
        }
    }

    /// Ends the events; their records stay.
    pub fn disable(&self) {
        self.rings.iter().flat_map(|ring| &ring.events).for_each(perf::disable);
    }

    /// Reads all records, and returns the events up to `until_ns` in order of time.
    pub fn drain(&mut self, until_ns: u64) -> Vec<Event> {
        for of_processor in &mut self.rings {
            of_processor.drain(&self.meanings, &mut self.record, &mut self.pending);
        }
        self.pending.sort_by_key(|event| event.time_ns);
        let due = self.pending.partition_point(|event| event.time_ns <= until_ns);
        self.pending.drain(..due).collect()
    }

    /// Records that did not fit into the rings; exact after all have been drained.
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(|ring| perf::lost(&ring.events, ring.samples_drained)).sum()
    }
}

impl ProcessorRing {
    fn drain(&mut self, meanings: &HashMap<u64, Meaning>, record: &mut Vec<u8>, events: &mut Vec<Event>) {
        let (head, mut tail) = (self.ring.head(), self.ring.tail());
        while tail < head {
            let header = self.ring.header(tail);
            record.resize((header.bytes as usize).max(HEADER_BYTES), 0);
            self.ring.copy(tail, record);
            events.extend(event_of(header, record, meanings));
            self.samples_drained += u64::from(header.kind == RECORD_SAMPLE);
            tail += header.bytes;
        }
        self.ring.release(tail);
    }
}

/// The event that reports processes, and has the ring.
fn open_processes(processor: c_int) -> io::Result<OwnedFd> {
    let flags = FLAGS | FLAG_TASK | FLAG_COMM | FLAG_COMM_EXEC;
    let request = Request { kind: TYPE_SOFTWARE, config: SOFTWARE_DUMMY, flags, sample_type: COMMON, ..request() };
    perf::open_with_losses(ALL, &request, Some(processor))
}

/// The event of a function's entries.
pub fn entry_request() -> Request {
    let stack_bytes = ENTRY_STACK_BYTES;
    Request { sample_type: WITH_STACK, registers: ENTRY_REGISTERS, stack_bytes, ..request() }
}

/// The event of a function's returns.
pub fn return_request() -> Request {
    Request { sample_type: AT_RETURN, registers: RETURN_REGISTERS, ..request() }
}

/// An event whose every occurrence has a record.
fn request() -> Request {
    Request { sample_period: 1, flags: FLAGS, clockid: libc::CLOCK_MONOTONIC, ..Request::default() }
}

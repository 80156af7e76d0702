//! The page-fault exceptions of this process: the kernel's software event, counted and optionally with addresses.
//!
//! The counter counts every exception. The ring stores their addresses. The difference is the number of lost addresses.

use std::io;
use std::os::fd::OwnedFd;

use crate::perf::{self, Request};
use crate::ring::{HEADER_BYTES, RECORD_SAMPLE, Ring, largest};

/// Which exceptions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Exceptions in user mode. Needs no privilege (`perf_event_paranoid` up to 2).
    User,
    /// Also exceptions in system calls (`perf_event_paranoid` up to 1, or root).
    All,
}

impl Mode {
    pub(crate) fn flags(self) -> u64 {
        match self {
            Self::User => perf::FLAG_EXCLUDE_KERNEL | perf::FLAG_EXCLUDE_HV,
            Self::All => 0,
        }
    }
}

/// A counter of traps, disabled until [`TrapCounter::enable`].
#[derive(Debug)]
pub struct TrapCounter {
    event: OwnedFd,
}

impl TrapCounter {
    /// Counts this thread, and the threads and processes that it starts from now on, in user mode.
    ///
    /// # Errors
    /// The kernel refuses the event.
    pub fn of_process() -> io::Result<TrapCounter> {
        TrapCounter::open(0, perf::FLAG_INHERIT | Mode::User.flags())
    }

    /// Counts this thread alone.
    ///
    /// # Errors
    /// The kernel refuses the event.
    pub fn of_thread(mode: Mode) -> io::Result<TrapCounter> {
        TrapCounter::open(0, mode.flags())
    }

    fn open(sample_type: u64, flags: u64) -> io::Result<TrapCounter> {
        TrapCounter::with_samples(&Request { sample_type, flags, ..Request::default() })
    }

    /// Counts this thread with the flags of a request, and samples each exception if the request asks for contents.
    pub(crate) fn with_samples(request: &Request) -> io::Result<TrapCounter> {
        let request = Request {
            kind: perf::TYPE_SOFTWARE,
            config: perf::SOFTWARE_PAGE_FAULTS,
            sample_period: u64::from(request.sample_type != 0),
            flags: request.flags | perf::FLAG_DISABLED,
            ..*request
        };
        Ok(TrapCounter { event: perf::open(&request, None)? })
    }

    /// The ring for its samples: the largest that the kernel grants, with its pages present.
    pub(crate) fn ring(&self) -> io::Result<Ring> {
        let ring = largest(RING_BYTES_MIN..=RING_BYTES_MAX, |bytes| Ring::map(&self.event, bytes))?;
        ring.touch();
        Ok(ring)
    }

    /// Starts counting.
    pub fn enable(&self) {
        perf::enable(&self.event);
    }

    /// Stops counting.
    pub fn disable(&self) {
        perf::disable(&self.event);
    }

    /// Traps so far.
    pub fn count(&self) -> u64 {
        perf::count(&self.event)
    }
}

/// Maximum and minimum size of the ring's data. Each attempt requests half of the previous size.
const RING_BYTES_MAX: usize = 16 << 20;
const RING_BYTES_MIN: usize = 64 << 10;
/// Bytes of a record: a header and an address.
const RECORD_BYTES: usize = HEADER_BYTES + 8;

/// Traps of this thread with their addresses, in user mode.
#[derive(Debug)]
pub struct TrapStream {
    counter: TrapCounter,
    ring: Ring,
    drained: u64,
}

impl TrapStream {
    /// Opens the stream with the largest ring that the kernel grants, and makes its pages present.
    ///
    /// # Errors
    /// The kernel refuses the event or the ring.
    pub fn open() -> io::Result<TrapStream> {
        let counter = TrapCounter::open(perf::SAMPLE_ADDRESS, Mode::User.flags())?;
        let ring = counter.ring()?;
        Ok(TrapStream { counter, ring, drained: 0 })
    }

    /// The stream's counter.
    pub fn counter(&self) -> &TrapCounter {
        &self.counter
    }

    /// Maximum number of traps that fit in the ring.
    pub fn capacity(&self) -> usize {
        self.ring.data_bytes() / RECORD_BYTES
    }

    /// Bytes waiting in the ring.
    pub fn waiting_bytes(&self) -> u64 {
        self.ring.head() - self.ring.tail()
    }

    /// Removes every waiting address from the ring, in order.
    pub fn drain(&mut self, mut each: impl FnMut(u64)) {
        let (head, mut tail) = (self.ring.head(), self.ring.tail());
        let mut samples = 0;
        while tail < head {
            let header = self.ring.header(tail);
            if header.kind == RECORD_SAMPLE {
                let mut address = [0; 8];
                self.ring.copy(tail + HEADER_BYTES as u64, &mut address);
                samples += 1;
                each(u64::from_ne_bytes(address));
            }
            tail += header.bytes;
        }
        self.ring.release(tail);
        self.drained += samples;
    }

    /// Traps whose address did not fit into the ring; exact after a drain.
    pub fn lost(&self) -> u64 {
        self.counter.count().saturating_sub(self.drained)
    }
}

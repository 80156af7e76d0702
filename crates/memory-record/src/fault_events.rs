//! Page faults for users who may not read tracepoints: the kernel's software event, which reports addresses but neither
//! reads nor writes. Its rings also get the records about processes and mappings. Each processor has one ring.

use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::perf::{
    self, FLAG_COMM, FLAG_COMM_EXEC, FLAG_EXCLUDE_HV, FLAG_EXCLUDE_KERNEL, FLAG_INHERIT, FLAG_MMAP, FLAG_MMAP_DATA,
    FLAG_MMAP2, FLAG_SAMPLE_ID_ALL, FLAG_TASK, FLAG_USE_CLOCKID, FLAG_WATERMARK, Request, SAMPLE_ADDRESS, SAMPLE_TID,
    SAMPLE_TIME, SOFTWARE_PAGE_FAULTS, TYPE_SOFTWARE,
};
use hksim_linux_probe::ring::{self, Ring};
use hksim_linux_probe::{processor, sysfs};
use hksim_memory_trace::Faults;
use libc::pid_t;

use crate::error::MemoryRecordError;

/// Data bytes of a ring: the largest power of two between these limits that the kernel grants for all rings.
/// `kernel.perf_event_mlock_kb` and `RLIMIT_MEMLOCK` limit a user's rings.
const RING_BYTES_MAX: usize = 32 << 20;
const RING_BYTES_MIN: usize = 64 << 10;
/// What is recorded beside the faults.
const PROCESSES: u64 = FLAG_MMAP | FLAG_MMAP_DATA | FLAG_MMAP2 | FLAG_COMM | FLAG_COMM_EXEC | FLAG_TASK;
const EVERYWHERE: u64 = FLAG_INHERIT | FLAG_WATERMARK | FLAG_USE_CLOCKID | FLAG_SAMPLE_ID_ALL;
/// Up to this value of `kernel.perf_event_paranoid` a user may count faults in user mode.
const PARANOID_MAX: i64 = 2;

/// The open events; they end when this value is dropped.
pub struct FaultEvents {
    /// One ring for each processor.
    pub rings: Vec<Ring>,
    /// Which faults they report.
    pub faults: Faults,
    /// The open events.
    pub events: Vec<OwnedFd>,
}

impl FaultEvents {
    /// Opens the events of the stopped process `pid` and of all processes that it starts, with faults in system calls
    /// if the kernel permits it.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn open(pid: pid_t) -> Result<Self, MemoryRecordError> {
        let open = |faults, flags| open_events(pid, flags).map(|events| (faults, events));
        let (faults, events) = open(Faults::All, 0)
            .or_else(|_| open(Faults::UserOnly, FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV))
            .map_err(|why| forbidden(&why))?;
        let rings = map_equal(&events).map_err(|why| MemoryRecordError::FaultsForbidden {
            why: format!("no ring for page-fault events: {why}"),
        })?;
        Ok(Self { rings, faults, events })
    }
}

/// One event for each processor.
fn open_events(pid: pid_t, flags: u64) -> io::Result<Vec<OwnedFd>> {
    let request = Request {
        kind: TYPE_SOFTWARE,
        config: SOFTWARE_PAGE_FAULTS,
        sample_period: 1,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDRESS,
        flags: flags | EVERYWHERE | PROCESSES,
        wakeup_bytes: (RING_BYTES_MAX / 8) as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..Request::default()
    };
    processor::online().into_iter().map(|processor| perf::open_with_losses(pid, &request, Some(processor))).collect()
}

/// Rings of the largest size that all processors can have.
fn map_equal(events: &[OwnedFd]) -> io::Result<Vec<Ring>> {
    let map = |data_bytes| events.iter().map(|event| Ring::map(event, data_bytes)).collect();
    ring::largest(RING_BYTES_MIN..=RING_BYTES_MAX, map)
}

/// Why the events cannot be opened, and what to do.
fn forbidden(why: &io::Error) -> MemoryRecordError {
    let paranoid = sysfs::text("/proc/sys/kernel/perf_event_paranoid").map(|text| text.parse::<i64>());
    let why = match paranoid {
        Some(Ok(paranoid)) if paranoid > PARANOID_MAX => {
            format!("kernel.perf_event_paranoid is {paranoid}; run sysctl kernel.perf_event_paranoid=2")
        }
        Some(_) => format!("perf_event_open: {why}; let the container or sandbox permit this call"),
        None => "this kernel or container has no perf events; record outside".to_string(),
    };
    MemoryRecordError::FaultsForbidden { why }
}

//! The kernel's page-fault events of a program and its descendants, with one ring per processor.

use std::io;
use std::os::fd::OwnedFd;

use hksim_linux_probe::perf::{
    self, FLAG_EXCLUDE_HV, FLAG_EXCLUDE_KERNEL, FLAG_INHERIT, FLAG_USE_CLOCKID, FLAG_WATERMARK, Request,
    SAMPLE_ADDRESS, SAMPLE_IP, SAMPLE_RAW, SAMPLE_TID, SAMPLE_TIME, SOFTWARE_PAGE_FAULTS, TYPE_SOFTWARE,
    TYPE_TRACEPOINT,
};
use hksim_linux_probe::{processor, ring};
use libc::c_int;
use serde::{Deserialize, Serialize};

use crate::pages::ring::Ring;
use crate::pages::tracefs::{Tracepoint, fault_tracepoints};

/// What the kernel reports about page faults, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultVisibility {
    /// Every fault, and whether the access was a read or a write.
    Accesses,
    /// Every fault.
    Faults,
    /// Faults in user mode, but not those in system calls.
    UserFaults,
    /// Nothing.
    None,
}

/// Data bytes of a ring: the largest power of two between these limits that the kernel grants.
const RING_BYTES_MAX: usize = 8 << 20;
const RING_BYTES_MIN: usize = 64 << 10;

/// Parameters of one event.
#[derive(Clone, Copy)]
struct EventConfig {
    kind: u32,
    config: u64,
    sample_type: u64,
    flags: u64,
}

/// Positions of the values in a sample.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// A software event's sample.
    Software,
    /// A tracepoint's sample; the two tracepoints that share a ring have the same layout.
    Tracepoint(Tracepoint),
}

/// Opens the rings for all processes that this thread starts from now on, with the best visibility that the system
/// allows. The last returned value is the reason why the visibility is not better.
pub fn open_rings() -> (FaultVisibility, Vec<Ring>, Option<String>) {
    let base = SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDRESS;
    let mut worse = "the page-fault tracepoints need root".to_string();
    if let Some(points) = fault_tracepoints().filter(|[user, kernel]| kernel == &Tracepoint { id: kernel.id, ..*user })
    {
        let wanted = points.map(|point| EventConfig {
            kind: TYPE_TRACEPOINT,
            config: point.id,
            sample_type: base | SAMPLE_RAW,
            flags: 0,
        });
        match open_all(&wanted, Layout::Tracepoint(points[0])) {
            Ok(rings) => return (FaultVisibility::Accesses, rings, None),
            Err(why) => worse = format!("the tracepoints of page faults cannot be opened ({why})"),
        }
    }
    let software = |flags| EventConfig { kind: TYPE_SOFTWARE, config: SOFTWARE_PAGE_FAULTS, sample_type: base, flags };
    if let Ok(rings) = open_all(&[software(0)], Layout::Software) {
        return (FaultVisibility::Faults, rings, Some(worse));
    }
    match open_all(&[software(FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV)], Layout::Software) {
        Ok(rings) => (FaultVisibility::UserFaults, rings, Some("kernel.perf_event_paranoid is above 1".to_string())),
        Err(why) => (FaultVisibility::None, Vec::new(), Some(format!("page-fault events cannot be opened ({why})"))),
    }
}

fn open_all(wanted: &[EventConfig], layout: Layout) -> io::Result<Vec<Ring>> {
    processor::online().into_iter().map(|processor| open_on(processor, wanted, layout)).collect()
}

/// The events of one processor, in one ring.
fn open_on(processor: c_int, wanted: &[EventConfig], layout: Layout) -> io::Result<Ring> {
    ring::largest(RING_BYTES_MIN..=RING_BYTES_MAX, |data_bytes| {
        let events =
            wanted.iter().map(|&wanted| open(processor, wanted, data_bytes)).collect::<io::Result<Vec<_>>>()?;
        let ring = Ring::map(events, data_bytes, layout)?;
        let (first, others) = ring.events();
        for other in others {
            perf::set_output(other, first)?;
        }
        Ok(ring)
    })
}

fn open(processor: c_int, wanted: EventConfig, ring_bytes: usize) -> io::Result<OwnedFd> {
    let request = Request {
        kind: wanted.kind,
        config: wanted.config,
        sample_period: 1,
        sample_type: wanted.sample_type,
        flags: wanted.flags | FLAG_INHERIT | FLAG_WATERMARK | FLAG_USE_CLOCKID,
        wakeup_bytes: (ring_bytes / 4) as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..Request::default()
    };
    let this_thread = 0;
    perf::open_with_losses(this_thread, &request, Some(processor))
}

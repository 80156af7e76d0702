//! The kernel's page-fault events, of a program and all that it starts, one ring per processor.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use serde::{Deserialize, Serialize};

use crate::pages::ring::Ring;
use crate::pages::tracefs::{Tracepoint, fault_tracepoints};

/// What the kernel tells about page faults, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// Every fault, and whether it was a read or a write.
    Accesses,
    /// Every fault.
    Faults,
    /// Faults of the program itself, not those that system calls take for it.
    UserFaults,
    /// Nothing.
    None,
}

/// `struct perf_event_attr` in its size of Linux 4.1.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: c_int,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u32,
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const SOFTWARE_PAGE_FAULTS: u64 = 2;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ADDRESS: u64 = 1 << 3;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HV: u64 = 1 << 6;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 8;
const IOCTL_SET_OUTPUT: libc::c_ulong = 0x2405;
/// Data bytes of a ring: powers of two, the first that the kernel grants.
const RING_BYTES_MAX: usize = 8 << 20;
const RING_BYTES_MIN: usize = 64 << 10;

/// What is asked of one event.
#[derive(Clone, Copy)]
struct Wanted {
    kind: u32,
    config: u64,
    sample_type: u64,
    flags: u64,
}

/// Where a sample has what is needed.
#[derive(Clone, Copy, Debug)]
pub enum Layout {
    /// A software event's sample.
    Software,
    /// A tracepoint's; of the two that share a ring, both look alike.
    Tracepoint(Tracepoint),
}

/// Opens the rings for all processes that this thread starts from now on, with the best sight that the system allows.
/// Second, why it is not a better one.
pub fn open_rings() -> (Sight, Vec<Ring>, Option<String>) {
    let base = SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDRESS;
    let mut worse = "the tracepoints of page faults are for root".to_string();
    if let Some(points) = fault_tracepoints().filter(|[user, kernel]| kernel == &Tracepoint { id: kernel.id, ..*user })
    {
        let wanted = points.map(|point| Wanted {
            kind: TYPE_TRACEPOINT,
            config: point.id,
            sample_type: base | SAMPLE_RAW,
            flags: 0,
        });
        match open_all(&wanted, Layout::Tracepoint(points[0])) {
            Ok(rings) => return (Sight::Accesses, rings, None),
            Err(why) => worse = format!("the tracepoints of page faults cannot be opened ({why})"),
        }
    }
    let software = |flags| Wanted { kind: TYPE_SOFTWARE, config: SOFTWARE_PAGE_FAULTS, sample_type: base, flags };
    if let Ok(rings) = open_all(&[software(0)], Layout::Software) {
        return (Sight::Faults, rings, Some(worse));
    }
    match open_all(&[software(FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV)], Layout::Software) {
        Ok(rings) => (Sight::UserFaults, rings, Some("kernel.perf_event_paranoid is above 1".to_string())),
        Err(why) => (Sight::None, Vec::new(), Some(format!("page-fault events cannot be opened ({why})"))),
    }
}

fn open_all(wanted: &[Wanted], layout: Layout) -> io::Result<Vec<Ring>> {
    let processors = online_processors();
    processors.into_iter().map(|processor| open_on(processor, wanted, layout)).collect()
}

/// The events of one processor, in one ring.
fn open_on(processor: c_int, wanted: &[Wanted], layout: Layout) -> io::Result<Ring> {
    let mut data_bytes = RING_BYTES_MAX;
    loop {
        let events =
            wanted.iter().map(|&wanted| open(processor, wanted, data_bytes)).collect::<io::Result<Vec<_>>>()?;
        match Ring::map(events, data_bytes, layout) {
            Ok(ring) => {
                let (first, others) = ring.events();
                for other in others {
                    // SAFETY: both descriptors are open events; no memory is touched.
                    if unsafe { libc::ioctl(other.as_raw_fd(), IOCTL_SET_OUTPUT as _, first.as_raw_fd()) } != 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                return Ok(ring);
            }
            Err(_) if data_bytes > RING_BYTES_MIN => data_bytes /= 2,
            Err(why) => return Err(why),
        }
    }
}

fn open(processor: c_int, wanted: Wanted, ring_bytes: usize) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: wanted.kind,
        size: size_of::<Attributes>() as u32,
        config: wanted.config,
        sample_period: 1,
        sample_type: wanted.sample_type,
        flags: wanted.flags | FLAG_INHERIT | FLAG_WATERMARK | FLAG_USE_CLOCKID,
        wakeup_watermark: (ring_bytes / 4) as u32,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads `size` bytes of the attributes. This thread and its children, one processor, no group.
    let got = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, 0, processor, -1, FLAG_CLOSE_ON_EXEC) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(got as c_int) })
}

/// The processors in use: `0-3,6`.
fn online_processors() -> Vec<c_int> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let known: Vec<c_int> = text.trim().split(',').filter_map(range).flatten().collect();
    if known.is_empty() { vec![0] } else { known }
}

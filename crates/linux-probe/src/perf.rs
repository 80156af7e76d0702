//! The kernel's performance events that count page faults and sample threads (`include/uapi/linux/perf_event.h`).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_ulong, pid_t};

/// Parameters of an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// [`TYPE_SOFTWARE`], [`TYPE_TRACEPOINT`], [`TYPE_HARDWARE_CACHE`] or the number of another event source.
    pub kind: u32,
    /// The event within its kind.
    pub config: u64,
    /// More about the event, for kinds that need it.
    pub more: [u64; 2],
    /// Sample every Nth event; 0 only counts.
    pub sample_period: u64,
    /// Contents of a sample: `SAMPLE_*`.
    pub sample_type: u64,
    /// `FLAG_*`.
    pub flags: u64,
    /// What a read returns after the count: [`READ_TIMES`], [`READ_LOST`] or nothing.
    pub read_format: u64,
    /// Bytes in the ring that wake a reader, with [`FLAG_WATERMARK`].
    pub wakeup_bytes: u32,
    /// The clock of the samples, with [`FLAG_USE_CLOCKID`].
    pub clockid: c_int,
    /// The registers of a sample, with [`SAMPLE_REGISTERS`]: one bit each (`arch/x86/include/uapi/asm/perf_regs.h`).
    pub registers: u64,
    /// Bytes of the stack in a sample, with [`SAMPLE_STACK`]: a multiple of 8.
    pub stack_bytes: u32,
}

/// `struct perf_event_attr`, with its size in Linux 4.1.
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

/// Software events of the kernel.
pub const TYPE_SOFTWARE: u32 = 1;
/// Tracepoint events.
pub const TYPE_TRACEPOINT: u32 = 2;
/// Events of the processor's caches and TLBs (`PERF_TYPE_HW_CACHE`).
pub const TYPE_HARDWARE_CACHE: u32 = 3;
/// Read also how long the event was enabled, and how long it counted (`PERF_FORMAT_TOTAL_TIME_ENABLED | _RUNNING`).
pub const READ_TIMES: u64 = 3;
/// Read also how many records of the event did not fit into its ring (`PERF_FORMAT_LOST`, from Linux 6.0).
pub const READ_LOST: u64 = 1 << 4;
/// `PERF_COUNT_SW_CPU_CLOCK`.
pub const SOFTWARE_CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_PAGE_FAULTS`.
pub const SOFTWARE_PAGE_FAULTS: u64 = 2;
/// `PERF_COUNT_SW_DUMMY`: counts nothing; its ring receives records about processes and mappings.
pub const SOFTWARE_DUMMY: u64 = 9;
/// Sample the instruction pointer.
pub const SAMPLE_IP: u64 = 1;
/// Sample the process and thread ids.
pub const SAMPLE_TID: u64 = 1 << 1;
/// Sample the time.
pub const SAMPLE_TIME: u64 = 1 << 2;
/// Sample the address accessed.
pub const SAMPLE_ADDRESS: u64 = 1 << 3;
/// Sample a tracepoint's data.
pub const SAMPLE_RAW: u64 = 1 << 10;
/// Begin a sample with the number of its event ([`number_of`]), and append it to other records.
pub const SAMPLE_IDENTIFIER: u64 = 1 << 16;
/// Sample registers of user mode.
pub const SAMPLE_REGISTERS: u64 = 1 << 12;
/// Sample a part of the user stack, from the stack pointer on.
pub const SAMPLE_STACK: u64 = 1 << 13;
/// The event is disabled until [`enable`] is called.
pub const FLAG_DISABLED: u64 = 1;
/// Include threads and processes started later.
pub const FLAG_INHERIT: u64 = 1 << 1;
/// Count in user mode only.
pub const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
/// Do not count in a hypervisor.
pub const FLAG_EXCLUDE_HV: u64 = 1 << 6;
/// Record new mappings of code.
pub const FLAG_MMAP: u64 = 1 << 8;
/// Record new names of processes.
pub const FLAG_COMM: u64 = 1 << 9;
/// Record forks and exits.
pub const FLAG_TASK: u64 = 1 << 13;
/// Record new mappings of data.
pub const FLAG_MMAP_DATA: u64 = 1 << 17;
/// Append process, thread and time to records that are not samples.
pub const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
/// Record mappings with protection and flags.
pub const FLAG_MMAP2: u64 = 1 << 23;
/// Mark names that come from exec.
pub const FLAG_COMM_EXEC: u64 = 1 << 24;
/// Wake the reader after a number of bytes, not of records.
pub const FLAG_WATERMARK: u64 = 1 << 14;
/// Take sample times from the clock [`Request::clockid`].
pub const FLAG_USE_CLOCKID: u64 = 1 << 25;

const FLAG_FD_CLOEXEC: c_ulong = 8;
/// `_IOR('$', 7, __u64 *)`.
const IOCTL_ID: c_ulong = 0x8008_2407;
const IOCTL_ENABLE: c_ulong = 0x2400;
const IOCTL_DISABLE: c_ulong = 0x2401;
const IOCTL_SET_OUTPUT: c_ulong = 0x2405;
/// `_IOW('$', 6, char *)`.
const IOCTL_SET_FILTER: c_ulong = 0x4008_2406;

/// Opens an event of the calling thread, on one processor or, with `None`, on all.
///
/// # Errors
/// The kernel's error: usually that `kernel.perf_event_paranoid` forbids it.
pub fn open(request: &Request, processor: Option<c_int>) -> io::Result<OwnedFd> {
    let this_thread = 0;
    open_of(this_thread, request, processor)
}

/// Opens an event of the thread `thread`, on one processor or, with `None`, on all.
///
/// # Errors
/// The kernel's error: usually that `kernel.perf_event_paranoid` forbids it.
pub fn open_of(thread: pid_t, request: &Request, processor: Option<c_int>) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: request.kind,
        size: size_of::<Attributes>() as u32,
        config: request.config,
        config1: request.more[0],
        config2: request.more[1],
        sample_period: request.sample_period,
        sample_type: request.sample_type,
        read_format: request.read_format,
        flags: request.flags,
        wakeup_watermark: request.wakeup_bytes,
        clockid: request.clockid,
        sample_regs_user: request.registers,
        sample_stack_user: request.stack_bytes,
        ..Attributes::default()
    };
    let (processor, no_group): (c_int, c_int) = (processor.unwrap_or(-1), -1);
    // SAFETY: the kernel reads `size` bytes of the attributes.
    let got = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, thread, processor, no_group, FLAG_FD_CLOEXEC)
    };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no other value owns.
    Ok(unsafe { OwnedFd::from_raw_fd(got as c_int) })
}

/// Starts an event.
pub fn enable(event: &OwnedFd) {
    // SAFETY: a request without an argument, on an open event.
    unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_ENABLE as _, 0) };
}

/// Stops an event.
pub fn disable(event: &OwnedFd) {
    // SAFETY: as in `enable`.
    unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_DISABLE as _, 0) };
}

/// The number that the event's records carry.
///
/// # Errors
/// The kernel refuses to tell it.
pub fn number_of(event: &OwnedFd) -> io::Result<u64> {
    let mut number = 0u64;
    // SAFETY: the kernel writes 8 bytes, the size of `number`.
    match unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_ID as _, &raw mut number) } {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How often the event has happened.
pub fn count(event: &OwnedFd) -> u64 {
    let mut count = 0u64;
    // SAFETY: the kernel writes at most 8 bytes, which is the size of `count`.
    unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
    count
}

/// How often an event with [`READ_TIMES`] has happened; `None` if it did not count all the time that it was enabled,
/// because there are fewer counters than events.
pub fn whole_count(event: &OwnedFd) -> Option<u64> {
    let mut read = [0u64; 3];
    // SAFETY: the kernel writes at most the size of `read`.
    let bytes = unsafe { libc::read(event.as_raw_fd(), read.as_mut_ptr().cast(), size_of_val(&read)) };
    let [count, enabled, counted] = read;
    (bytes == size_of_val(&read) as isize && enabled == counted).then_some(count)
}

/// Opens an event of the thread `thread` whose losses [`lost`] tells, by the kernel's own count if it has one.
///
/// # Errors
/// As for [`open_of`].
pub fn open_with_losses(thread: pid_t, request: &Request, processor: Option<c_int>) -> io::Result<OwnedFd> {
    match open_of(thread, &Request { read_format: READ_LOST, ..*request }, processor) {
        Err(why) if why.raw_os_error() == Some(libc::EINVAL) => open_of(thread, request, processor),
        opened => opened,
    }
}

/// Records of these events that did not fit into their rings, of which `samples` samples have been read. Each
/// occurrence must have a sample: a sample period of 1.
///
/// A ring itself reports its losses only with the next record that fits, so it never reports those at the end.
pub fn lost(events: &[OwnedFd], samples: u64) -> u64 {
    let (mut occurred, mut lost) = (0u64, Some(0u64));
    for event in events {
        let mut read = [0u64; 2];
        // SAFETY: the kernel writes at most the size of `read`.
        let bytes = unsafe { libc::read(event.as_raw_fd(), read.as_mut_ptr().cast(), size_of_val(&read)) };
        occurred += read[0];
        let has_losses = bytes == size_of_val(&read) as isize;
        lost = lost.filter(|_| has_losses).map(|lost| lost + read[1]);
    }
    lost.unwrap_or_else(|| occurred.saturating_sub(samples))
}

/// Redirects `event`'s records to the ring of `other`.
///
/// # Errors
/// The two events are incompatible.
pub fn set_output(event: &OwnedFd, other: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open events; no memory is touched.
    match unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_SET_OUTPUT as _, other.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restricts a tracepoint event to records that match an expression of their fields (`id == 9 || id == 11`).
///
/// # Errors
/// The kernel refuses the expression.
pub fn set_filter(event: &OwnedFd, expression: &CStr) -> io::Result<()> {
    // SAFETY: the expression is a C string, which the kernel copies.
    match unsafe { libc::ioctl(event.as_raw_fd(), IOCTL_SET_FILTER as _, expression.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

//! The page-fault exceptions of this process: the kernel's software event, counted and, where asked, with addresses.
//!
//! Only exceptions from user mode count, which needs no privilege (`perf_event_paranoid` up to 2). The counter counts
//! every exception; the ring keeps their addresses, and what it lost is the difference of the two.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use hksim_policy::PAGE_BYTES;

/// `struct perf_event_attr` in its first published size.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
}

const TYPE_SOFTWARE: u32 = 1;
const SOFTWARE_PAGE_FAULTS: u64 = 2;
const SAMPLE_ADDRESS: u64 = 1 << 3;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HV: u64 = 1 << 6;
const FLAG_CLOEXEC: libc::c_ulong = 8;
const IOCTL_ENABLE: libc::c_ulong = 0x2400;
const IOCTL_DISABLE: libc::c_ulong = 0x2401;
const RECORD_SAMPLE: u32 = 9;

/// A counter of traps, off until [`TrapCounter::enable`].
#[derive(Debug)]
pub(crate) struct TrapCounter {
    event: OwnedFd,
}

impl TrapCounter {
    /// Counts this thread and all that it starts from now on.
    pub(crate) fn of_process() -> io::Result<TrapCounter> {
        TrapCounter::open(0, FLAG_INHERIT)
    }

    fn open(sample_type: u64, flags: u64) -> io::Result<TrapCounter> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: SOFTWARE_PAGE_FAULTS,
            sample_period: u64::from(sample_type != 0),
            sample_type,
            read_format: 0,
            flags: flags | FLAG_DISABLED | FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV,
            wakeup: 0,
            breakpoint_type: 0,
            config1: 0,
        };
        // SAFETY: the kernel reads `size` bytes of the attributes. This thread, any CPU, no group.
        let got = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, FLAG_CLOEXEC) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new file descriptor that nobody else owns.
        Ok(TrapCounter { event: unsafe { OwnedFd::from_raw_fd(got as i32) } })
    }

    /// Starts counting.
    pub(crate) fn enable(&self) {
        self.control(IOCTL_ENABLE);
    }

    /// Stops counting.
    pub(crate) fn disable(&self) {
        self.control(IOCTL_DISABLE);
    }

    fn control(&self, request: libc::c_ulong) {
        // SAFETY: a request without argument, on an event of our own.
        unsafe { libc::ioctl(self.event.as_raw_fd(), request as _, 0) };
    }

    /// Traps so far.
    pub(crate) fn count(&self) -> u64 {
        let mut count = 0u64;
        // SAFETY: eight bytes are read into eight bytes.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
        count
    }
}

/// Offsets in the ring's control page (`struct perf_event_mmap_page`).
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Data bytes of the ring: powers of two, the first that the kernel grants.
const RING_BYTES_MAX: usize = 16 << 20;
const RING_BYTES_MIN: usize = 64 << 10;

/// Traps of this thread with their addresses.
#[derive(Debug)]
pub(crate) struct TrapStream {
    counter: TrapCounter,
    map: *mut u8,
    data_bytes: usize,
    drained: u64,
}

impl TrapStream {
    /// Opens the stream with the largest ring that the kernel grants, its pages present.
    pub(crate) fn open() -> io::Result<TrapStream> {
        let counter = TrapCounter::open(SAMPLE_ADDRESS, 0)?;
        let mut data_bytes = RING_BYTES_MAX;
        loop {
            match map_ring(&counter, data_bytes) {
                Ok(map) => return Ok(TrapStream { counter, map, data_bytes, drained: 0 }),
                Err(_) if data_bytes > RING_BYTES_MIN => data_bytes /= 2,
                Err(why) => return Err(why),
            }
        }
    }

    /// The counter behind it.
    pub(crate) fn counter(&self) -> &TrapCounter {
        &self.counter
    }

    /// Most traps that fit in the ring.
    pub(crate) fn capacity(&self) -> usize {
        self.data_bytes / 16
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the ring's control page, which the kernel shares.
        unsafe { &*self.map.add(at).cast::<AtomicU64>() }
    }

    /// Bytes that wait in the ring.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.word(HEAD_AT).load(Ordering::Acquire) - self.word(TAIL_AT).load(Ordering::Relaxed)
    }

    /// Takes every waiting address out of the ring, in order.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(u64)) {
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.word(TAIL_AT).load(Ordering::Relaxed);
        let word_at = |position: u64| {
            let offset = PAGE_BYTES as usize + (position as usize & (self.data_bytes - 1));
            // SAFETY: records are multiples of 8 bytes, so every word lies whole inside the ring's data.
            unsafe { self.map.add(offset).cast::<u64>().read_volatile() }
        };
        let mut samples = 0;
        while tail < head {
            let header = word_at(tail);
            if header as u32 == RECORD_SAMPLE {
                samples += 1;
                each(word_at(tail + 8));
            }
            tail += (header >> 48).max(8);
        }
        fence(Ordering::SeqCst);
        self.word(TAIL_AT).store(tail, Ordering::Release);
        self.drained += samples;
    }

    /// Traps whose address the ring had no room for. Exact after a drain.
    pub(crate) fn lost(&self) -> u64 {
        self.counter.count().saturating_sub(self.drained)
    }
}

impl Drop for TrapStream {
    fn drop(&mut self) {
        // SAFETY: the map is this value's own.
        unsafe { libc::munmap(self.map.cast(), PAGE_BYTES as usize + self.data_bytes) };
    }
}

fn map_ring(counter: &TrapCounter, data_bytes: usize) -> io::Result<*mut u8> {
    let bytes = PAGE_BYTES as usize + data_bytes;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new map of the event's ring.
    let got = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, counter.event.as_raw_fd(), 0) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    for at in (0..bytes).step_by(PAGE_BYTES as usize) {
        // SAFETY: a byte of the map; the kernel has not begun to write.
        unsafe { got.cast::<u8>().add(at).read_volatile() };
    }
    let map: *mut u8 = got.cast();
    // SAFETY: the tail word; writing its value back makes the control page writable without a later fault.
    unsafe { (*map.add(TAIL_AT).cast::<AtomicU64>()).store(0, Ordering::Relaxed) };
    Ok(map)
}

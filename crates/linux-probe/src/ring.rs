//! The ring into which the kernel writes an event's records (`struct perf_event_mmap_page`).

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::PAGE_BYTES;

/// Offsets of `data_head` and `data_tail` in the control page.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 8;
/// `PERF_RECORD_LOST`: records that did not fit.
pub const RECORD_LOST: u32 = 2;
/// `PERF_RECORD_COMM`: a new name of a process.
pub const RECORD_COMM: u32 = 3;
/// `PERF_RECORD_EXIT`: the end of a thread.
pub const RECORD_EXIT: u32 = 4;
/// `PERF_RECORD_FORK`: a new thread or process.
pub const RECORD_FORK: u32 = 7;
/// `PERF_RECORD_SAMPLE`.
pub const RECORD_SAMPLE: u32 = 9;

/// `PERF_RECORD_MISC_COMM_EXEC`: the name comes from exec.
pub const MISC_COMM_EXEC: u16 = 1 << 13;

/// Kind and length of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// `RECORD_*`.
    pub kind: u32,
    /// Flags; the lowest three bits are the processor's mode.
    pub misc: u16,
    /// Length, header included.
    pub bytes: u64,
}

/// A mapped ring.
#[derive(Debug)]
pub struct Ring {
    map: *mut u8,
    data_bytes: usize,
}

// SAFETY: only this value uses the mapping. What the kernel writes is read by atomics, or is before the head.
unsafe impl Send for Ring {}

/// Maps rings with the largest number of bytes for records that the kernel grants, from `bytes.end()` by halves down to
/// `bytes.start()`.
///
/// # Errors
/// The error for the smallest size.
pub fn largest<T>(bytes: RangeInclusive<usize>, map: impl Fn(usize) -> io::Result<T>) -> io::Result<T> {
    let mut data_bytes = *bytes.end();
    loop {
        match map(data_bytes) {
            Err(_) if data_bytes > *bytes.start() => data_bytes /= 2,
            mapped => return mapped,
        }
    }
}

impl Ring {
    /// Maps the ring of an event, with `data_bytes` (a power of two) for records.
    ///
    /// # Errors
    /// The kernel does not grant the ring.
    pub fn map(event: &OwnedFd, data_bytes: usize) -> io::Result<Ring> {
        let bytes = PAGE_BYTES as usize + data_bytes;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of the event's ring.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, event.as_raw_fd(), 0) };
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Ring { map: got.cast(), data_bytes }) }
    }

    /// Makes the ring's pages present, so that later accesses cause no page fault.
    pub fn touch(&self) {
        for at in (0..PAGE_BYTES as usize + self.data_bytes).step_by(PAGE_BYTES as usize) {
            // SAFETY: a byte of the mapping.
            unsafe { self.map.add(at).read_volatile() };
        }
        // Storing the current value makes the control page writable.
        self.word(TAIL_AT).store(self.tail(), Ordering::Relaxed);
    }

    /// Bytes for records.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the ring's control page, which the kernel shares.
        unsafe { &*self.map.add(at).cast::<AtomicU64>() }
    }

    /// Position after the newest record.
    pub fn head(&self) -> u64 {
        self.word(HEAD_AT).load(Ordering::Acquire)
    }

    /// Position of the oldest record.
    pub fn tail(&self) -> u64 {
        self.word(TAIL_AT).load(Ordering::Relaxed)
    }

    /// Lets the kernel overwrite everything before a position.
    pub fn release(&self, tail: u64) {
        self.word(TAIL_AT).store(tail, Ordering::Release);
    }

    /// The header of the record at a position before the head.
    pub fn header(&self, position: u64) -> RecordHeader {
        let mut bytes = [0; HEADER_BYTES];
        self.copy(position, &mut bytes);
        let word = u64::from_ne_bytes(bytes);
        RecordHeader { kind: word as u32, misc: (word >> 32) as u16, bytes: (word >> 48).max(HEADER_BYTES as u64) }
    }

    /// Fills `into` with the bytes from a position on, wrapping around at the ring's end.
    pub fn copy(&self, position: u64, into: &mut [u8]) {
        assert!(into.len() <= self.data_bytes, "no record is longer than its ring");
        let start = position as usize & (self.data_bytes - 1);
        let first = into.len().min(self.data_bytes - start);
        // SAFETY: by the assertion both parts are inside the ring's data, which begins after the control page.
        unsafe {
            let data = self.map.add(PAGE_BYTES as usize);
            data.add(start).copy_to_nonoverlapping(into.as_mut_ptr(), first);
            data.copy_to_nonoverlapping(into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.map.cast(), PAGE_BYTES as usize + self.data_bytes) };
    }
}

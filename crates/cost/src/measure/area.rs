//! Memory to measure on, and the clock.

use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use hksim_linux::PAGE_BYTES;

use super::MeasureError;

/// Bytes of a huge page.
pub(super) const HUGE_BYTES: u64 = 2 << 20;

/// An anonymous private mapping, unmapped when dropped.
pub(super) struct Area {
    /// Where it lies.
    map: NonNull<u8>,
    map_bytes: u64,
    /// First byte used: where huge pages begin, if asked for.
    start: u64,
    bytes: u64,
}

impl Area {
    /// A mapping of so many bytes that begins on a border of 2 MiB.
    pub(super) fn new(bytes: u64) -> Result<Area, MeasureError> {
        Area::with_flags(bytes, libc::MAP_NORESERVE, HUGE_BYTES)?.ok_or_else(|| MeasureError::last("map memory"))
    }

    /// One of pages of the hugetlb pool; `None` where it has none.
    pub(super) fn of_pool(bytes: u64) -> Result<Option<Area>, MeasureError> {
        Area::with_flags(bytes, libc::MAP_HUGETLB, 0)
    }

    /// One that the kernel fills.
    pub(super) fn populated(bytes: u64) -> Result<Area, MeasureError> {
        Area::with_flags(bytes, libc::MAP_POPULATE, 0)?.ok_or_else(|| MeasureError::last("map memory"))
    }

    fn with_flags(bytes: u64, flags: i32, slack: u64) -> Result<Option<Area>, MeasureError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let map_bytes = bytes + slack;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let map =
            unsafe { libc::mmap(null_mut(), map_bytes as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Ok(None);
        }
        let Some(map) = NonNull::new(map.cast::<u8>()) else { return Err(MeasureError::last("map memory")) };
        let start = if slack > 0 { (map.as_ptr() as u64).next_multiple_of(slack) - map.as_ptr() as u64 } else { 0 };
        Ok(Some(Area { map, map_bytes, start, bytes }))
    }

    pub(super) fn pages(&self) -> u64 {
        self.bytes / PAGE_BYTES
    }

    fn at(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.bytes, "inside the area");
        // SAFETY: `start + bytes <= map_bytes`, and the offset is below `bytes`.
        unsafe { self.map.as_ptr().add((self.start + offset) as usize) }
    }

    /// Writes a byte every `stride` bytes.
    pub(super) fn write(&self, stride: u64) {
        // SAFETY: `at` points into a writable mapping of ours; nobody holds a reference to it.
        (0..self.bytes).step_by(stride as usize).for_each(|offset| unsafe { self.at(offset).write_volatile(1) });
    }

    /// Reads a byte of every page.
    pub(super) fn read(&self) {
        for offset in (0..self.bytes).step_by(PAGE_BYTES as usize) {
            // SAFETY: as in `write`; anonymous memory is initialised.
            let _ = unsafe { self.at(offset).read_volatile() };
        }
    }

    /// Writes every byte.
    pub(super) fn fill(&self) {
        // SAFETY: the whole range lies in a writable mapping of ours.
        unsafe { std::ptr::write_bytes(self.at(0), 1, self.bytes as usize) };
    }

    /// `madvise` of all of it; whether the kernel took it.
    pub(super) fn advise(&self, advice: i32) -> bool {
        self.advise_part(0, self.bytes, advice)
    }

    /// `madvise` of a part.
    pub(super) fn advise_part(&self, offset: u64, bytes: u64, advice: i32) -> bool {
        assert!(offset + bytes <= self.bytes, "inside the area");
        // SAFETY: the range is ours, and nothing is kept in it.
        unsafe { libc::madvise(self.at(offset).cast(), bytes as usize, advice) == 0 }
    }

    /// Unmaps what is used, as a drop would.
    pub(super) fn unmap(self) {
        drop(self);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes as usize) };
    }
}

/// Processor time of this thread, in user and kernel, that something takes.
pub(super) fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let result = run();
    (result, thread_time().saturating_sub(before))
}

fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` only. The clock of the calling thread always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Page faults of this thread so far.
pub(super) fn faults() -> u64 {
    // SAFETY: `rusage` is valid when zeroed, and the kernel writes to it only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_minflt as u64
}

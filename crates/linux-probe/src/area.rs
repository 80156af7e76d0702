//! Memory on which page operations are measured, and the clock for the measurements.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use crate::PAGE_BYTES;

/// Bytes of a huge page.
pub const HUGE_BYTES: u64 = 2 << 20;

/// The page size to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// 4 KiB.
    Page,
    /// A folio size between 4 KiB and 2 MiB, in bytes: the largest enabled one.
    Between(u64),
    /// 2 MiB, if huge pages are enabled.
    Huge,
}

impl Granule {
    /// Bytes of a page.
    pub fn bytes(self) -> u64 {
        match self {
            Granule::Page => PAGE_BYTES,
            Granule::Between(bytes) => bytes,
            Granule::Huge => HUGE_BYTES,
        }
    }
}

/// An anonymous private mapping, unmapped when dropped.
pub struct Area {
    /// First byte of the mapping.
    map: NonNull<u8>,
    map_bytes: u64,
    /// Offset of the first byte used in the mapping. Areas that may use huge pages start on a 2 MiB boundary.
    start: u64,
    bytes: u64,
}

impl Area {
    /// Maps `bytes`, aligned to 2 MiB.
    ///
    /// # Errors
    /// The address space is exhausted.
    pub fn new(bytes: u64) -> io::Result<Area> {
        Area::with_flags(bytes, libc::MAP_NORESERVE, HUGE_BYTES)?.ok_or_else(io::Error::last_os_error)
    }

    /// Like [`Area::new`], with advice to use pages of this size.
    ///
    /// # Errors
    /// The address space is exhausted.
    pub fn of(granule: Granule, bytes: u64) -> io::Result<Area> {
        let area = Area::new(bytes)?;
        area.advise(match granule {
            Granule::Page => libc::MADV_NOHUGEPAGE,
            Granule::Between(_) | Granule::Huge => libc::MADV_HUGEPAGE,
        });
        Ok(area)
    }

    /// Maps pages of the hugetlb pool. `None` if the pool has too few free pages.
    ///
    /// # Errors
    /// The kernel placed the mapping at address 0.
    pub fn of_pool(bytes: u64) -> io::Result<Option<Area>> {
        Area::with_flags(bytes, libc::MAP_HUGETLB, 0)
    }

    /// Maps memory that the kernel populates.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn populated(bytes: u64) -> io::Result<Area> {
        Area::with_flags(bytes, libc::MAP_POPULATE, 0)?.ok_or_else(io::Error::last_os_error)
    }

    fn with_flags(bytes: u64, flags: i32, slack: u64) -> io::Result<Option<Area>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        let map_bytes = bytes + slack;
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory of ours.
        let map =
            unsafe { libc::mmap(null_mut(), map_bytes as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Ok(None);
        }
        let Some(map) = NonNull::new(map.cast::<u8>()) else { return Err(io::Error::last_os_error()) };
        let start = if slack > 0 { (map.as_ptr() as u64).next_multiple_of(slack) - map.as_ptr() as u64 } else { 0 };
        Ok(Some(Area { map, map_bytes, start, bytes }))
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of 4 KiB pages.
    pub fn pages(&self) -> u64 {
        self.bytes / PAGE_BYTES
    }

    fn at(&self, offset: u64) -> *mut u8 {
        assert!(offset < self.bytes, "inside the area");
        // SAFETY: `start + bytes <= map_bytes`, and the offset is below `bytes`.
        unsafe { self.map.as_ptr().add((self.start + offset) as usize) }
    }

    /// Writes a byte every `stride` bytes.
    pub fn write(&self, stride: u64) {
        self.write_part(0, self.bytes, stride);
    }

    /// Writes a byte every `stride` bytes of a part.
    pub fn write_part(&self, offset: u64, bytes: u64, stride: u64) {
        // SAFETY: `at` points into our own writable mapping, to which there are no references.
        (0..bytes).step_by(stride as usize).for_each(|at| unsafe { self.at(offset + at).write_volatile(1) });
    }

    /// Reads a byte of every page.
    pub fn read(&self) {
        for offset in (0..self.bytes).step_by(PAGE_BYTES as usize) {
            // SAFETY: as in `write`; anonymous memory is initialised.
            let _ = unsafe { self.at(offset).read_volatile() };
        }
    }

    /// Writes every byte.
    pub fn fill(&self) {
        self.fill_part(0, self.bytes);
    }

    /// Writes every byte of a part.
    pub fn fill_part(&self, offset: u64, bytes: u64) {
        assert!(offset + bytes <= self.bytes, "inside the area");
        // SAFETY: the whole range is in our own writable mapping.
        unsafe { std::ptr::write_bytes(self.at(offset), 1, bytes as usize) };
    }

    /// Writes a word at a multiple of 8.
    pub fn write_word(&self, offset: u64, word: u64) {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "a word of the area");
        // SAFETY: as in `write`; areas start at a page.
        unsafe { self.at(offset).cast::<u64>().write_volatile(word) };
    }

    /// Writes the byte at `offset`.
    ///
    /// # Safety
    /// The area contains the byte.
    #[inline(always)]
    pub(crate) unsafe fn write_unchecked(&self, offset: u64) {
        // SAFETY: as in `write`; the caller guarantees the offset.
        unsafe { self.map.as_ptr().add((self.start + offset) as usize).write_volatile(1) };
    }

    /// Reads the word at `offset`.
    ///
    /// # Safety
    /// `offset` is a multiple of 8, and the area contains the 8 bytes there.
    #[inline(always)]
    pub(crate) unsafe fn word_unchecked(&self, offset: u64) -> u64 {
        // SAFETY: as in `read`; the caller guarantees the offset, and areas start at a page.
        unsafe { self.map.as_ptr().add((self.start + offset) as usize).cast::<u64>().read_volatile() }
    }

    /// `madvise` of the whole area; returns whether the kernel accepted it.
    pub fn advise(&self, advice: i32) -> bool {
        self.advise_part(0, self.bytes, advice)
    }

    /// `madvise` of a part; returns whether the kernel accepted it.
    pub fn advise_part(&self, offset: u64, bytes: u64, advice: i32) -> bool {
        assert!(offset + bytes <= self.bytes, "inside the area");
        // SAFETY: the range is ours and has no data.
        unsafe { libc::madvise(self.at(offset).cast(), bytes as usize, advice) == 0 }
    }

    /// Moves the area over another one of the same length with `mremap`; returns whether it succeeded.
    pub fn move_to(&self, other: &Area) -> bool {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let bytes = self.bytes.min(other.bytes) as usize;
        // SAFETY: both ranges are ours and have no data.
        unsafe { libc::mremap(self.at(0).cast(), bytes, bytes, flags, other.at(0)) != libc::MAP_FAILED }
    }

    /// Unmaps the area, as drop would.
    pub fn unmap(self) {
        drop(self);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes as usize) };
    }
}

/// Runs `run`, and returns the processor time that this thread spent on it, in user mode and in the kernel.
pub fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_time();
    let result = run();
    (result, thread_time().saturating_sub(before))
}

/// Memory larger than this has left the caches by its next touch.
const CACHED_BYTES_MAX: u64 = 32 << 20;

/// Touches and releases `bytes` of memory several times, and returns the processor time of the last touch.
///
/// In a virtual machine, free memory may have gone back to the host. After this call, that much memory is present, and
/// as warm in the caches as its size allows. Memory larger than the caches is touched twice, smaller memory four times:
/// with 6 MiB, a huge page took 160, 90, 50, 42 and 42 us in successive touches (Zen 4, 32 MiB of third-level cache).
///
/// # Errors
/// The address space is exhausted.
pub fn warm_up(granule: Granule, bytes: u64) -> io::Result<Duration> {
    warm_up_by(bytes, || {
        let area = Area::of(granule, bytes)?;
        Ok(timed(|| area.write(granule.bytes())).1)
    })
}

/// Like [`warm_up`], for any kind of memory: `touch` maps, touches and releases `bytes`, and returns the time of the
/// touch.
///
/// # Errors
/// The errors of `touch`.
pub fn warm_up_by(bytes: u64, mut touch: impl FnMut() -> io::Result<Duration>) -> io::Result<Duration> {
    let before = if bytes > CACHED_BYTES_MAX { 1 } else { 3 };
    for _ in 0..before {
        touch()?;
    }
    touch()
}

/// Like [`warm_up`], for pages of the hugetlb pool. Returns zero if the pool has too few free pages.
///
/// # Errors
/// The address space is exhausted.
pub fn warm_up_pool(bytes: u64) -> io::Result<Duration> {
    warm_up_by(bytes, || Ok(Area::of_pool(bytes)?.map_or(Duration::ZERO, |area| timed(|| area.write(HUGE_BYTES)).1)))
}

/// Memory that is touched to measure the machine's current speed.
const YARDSTICK_BYTES: u64 = 4 << 20;

/// Number of measurements. Their median is used, because a single measurement is off by 10 %.
const YARDSTICK_TIMES: usize = 5;

/// The machine's current speed: processor time of the first touch of 4 MiB of warm memory in single pages.
///
/// # Errors
/// The address space is exhausted.
pub fn yardstick() -> io::Result<Duration> {
    let mut times = [Duration::ZERO; YARDSTICK_TIMES];
    for time in &mut times {
        *time = warm_up(Granule::Page, YARDSTICK_BYTES)?;
    }
    times.sort();
    Ok(times[YARDSTICK_TIMES / 2])
}

/// Processor time of this thread so far, in user mode and in the kernel.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes only to `time`. The clock of the calling thread always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Page faults of this thread so far.
pub fn faults() -> u64 {
    // SAFETY: a zeroed `rusage` is valid, and the kernel writes only to `usage`.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    usage.ru_minflt as u64
}

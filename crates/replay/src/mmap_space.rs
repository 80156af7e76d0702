//! The address space of an allocator design on real memory.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use hksim_engine::{AddressSpace, Advice, Cause, Errno, Growth, Heaps, Mapping, OnSpace, Region, SetClock, Touch};
use hksim_linux_probe::maps::{self, Maps};
use hksim_linux_probe::resident::make_resident;
use hksim_native::{Os, Syscalls};
use hksim_policy::PAGE_BYTES;
use hksim_policy::memory::{APPLICATION_BYTE, MemoryLock};

use crate::calls::Counted;
use crate::observed_os::ObservedOs;
use crate::replayable::Replayable;
use crate::result::Replayed;

/// Bytes between two loads when the program reads a range: a cache line.
const LINE_BYTES: usize = 64;

/// The maker of an address space's system calls.
///
/// # Safety
/// As of [`Os`].
pub(crate) trait SpaceOs: Os {
    /// `mremap` of `bytes` bytes at `at` to `new_bytes` bytes at `to`: in place if the addresses are equal, otherwise with
    /// `MREMAP_MAYMOVE | MREMAP_FIXED`.
    ///
    /// # Safety
    /// Both ranges belong to the caller; nothing in the target is needed, unless it is the source.
    unsafe fn resize(&self, at: NonNull<u8>, bytes: usize, to: NonNull<u8>, new_bytes: usize) -> Result<(), Errno>;
}

impl SpaceOs for Syscalls {
    unsafe fn resize(&self, at: NonNull<u8>, bytes: usize, to: NonNull<u8>, new_bytes: usize) -> Result<(), Errno> {
        let flags = if at == to { 0 } else { libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED };
        // SAFETY: guaranteed by the caller.
        let got = unsafe { libc::mremap(at.as_ptr().cast(), bytes, new_bytes, flags, to.as_ptr()) };
        if got == libc::MAP_FAILED {
            Err(Errno(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)))
        } else {
            Ok(())
        }
    }
}

/// The memory that a space needs besides its mappings, prepared before the measured window.
pub(crate) struct ReadySpace(Region);

impl ReadySpace {
    /// Allocates this memory and makes it present.
    pub(crate) fn new() -> io::Result<ReadySpace> {
        let overlaps = |map: &maps::Mapping<'_>| {
            (map.start as u64) < Region::START + Region::BYTES && Region::START < (map.start + map.bytes) as u64
        };
        if Maps::read()?.iter().any(|map| overlaps(&map)) {
            return Err(io::Error::other(format!("this process already uses addresses from {:#x} on", Region::START)));
        }
        let region = Region::new();
        let (start, bytes) = region.extent();
        make_resident(start, bytes);
        Ok(ReadySpace(region))
    }
}

/// An [`AddressSpace`] of real memory: every call is a system call, every access an access. It is not thread-safe. At most
/// one may exist in a process, because all use the same addresses.
pub(crate) struct MmapSpace<O> {
    os: O,
    region: Region,
    now_ns: u64,
}

fn bytes_of(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// A pointer to a range of the region.
///
/// # Panics
/// The range is not inside the region: a bug in the design.
fn pointer(at: u64, bytes: u64) -> NonNull<u8> {
    let is_inside =
        at >= Region::START && at.checked_add(bytes).is_some_and(|end| end <= Region::START + Region::BYTES);
    assert!(is_inside, "a design accesses {at:#x}, which it never mapped");
    let pointer = std::ptr::with_exposed_provenance_mut(at as usize);
    NonNull::new(pointer).unwrap_or_else(|| unreachable!("the region does not start at 0"))
}

fn word(at: u64) -> *mut u64 {
    assert!(at.is_multiple_of(8), "a design accesses a word at {at:#x}, which is not a multiple of 8");
    pointer(at, 8).as_ptr().cast()
}

impl<O: SpaceOs> MmapSpace<O> {
    /// An empty space whose system calls `os` makes.
    pub(crate) fn new(ready: ReadySpace, os: O) -> MmapSpace<O> {
        let ReadySpace(region) = ready;
        MmapSpace { os, region, now_ns: 0 }
    }
}

impl<O> SetClock for MmapSpace<O> {
    fn set_now(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }
}

// Soundness of every method: addresses are checked to be in the region, which was empty when the space was created and far
// from where the kernel places mappings by itself. So it contains only mappings of this space, and no Rust object. An
// access to a part that is not mapped ends the process with SIGSEGV.
impl<O: SpaceOs> AddressSpace for MmapSpace<O> {
    fn map(&mut self, bytes: u64, align: u64, mapping: Mapping) -> Result<u64, Errno> {
        let range = self.region.place(bytes, align, mapping)?;
        // SAFETY: the range is free, and in the region.
        unsafe { self.os.map(pointer(range.start, bytes), bytes_of(&range), mapping) }?;
        self.region.add(range.clone());
        Ok(range.start)
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Errno> {
        let range = self.region.range(at, bytes)?;
        self.region.check_removable(&range)?;
        // SAFETY: only the design uses the region, and it gives the range up.
        unsafe { self.os.unmap(pointer(at, bytes), bytes_of(&range)) }?;
        self.region.remove(range);
        Ok(())
    }

    fn advise(&mut self, at: u64, bytes: u64, advice: Advice) -> Result<(), Errno> {
        let range = self.region.range(at, bytes)?;
        // SAFETY: as for `unmap`.
        unsafe { self.os.advise(pointer(at, bytes), bytes_of(&range), advice) }
    }

    fn remap(&mut self, at: u64, bytes: u64, new_bytes: u64, growth: Growth) -> Result<u64, Errno> {
        let old = self.region.range(at, bytes)?;
        let new = self.region.place_resized(&old, new_bytes, growth)?;
        if new == old {
            return Ok(at);
        }
        let (from, to) = (pointer(at, bytes), pointer(new.start, new_bytes));
        // SAFETY: the source is the design's; the target is free, except for the source itself.
        unsafe { self.os.resize(from, bytes_of(&old), to, bytes_of(&new)) }?;
        self.region.remove(old);
        self.region.add(new.clone());
        Ok(new.start)
    }

    #[inline]
    fn read(&mut self, at: u64, _cause: Cause) -> u64 {
        // SAFETY: an aligned word of the region; memory from the kernel is always initialised.
        unsafe { word(at).read_volatile() }
    }

    #[inline]
    fn write(&mut self, at: u64, value: u64, _cause: Cause) {
        // SAFETY: as for `read`; no Rust object is in the region.
        unsafe { word(at).write_volatile(value) };
    }

    #[inline]
    fn touch(&mut self, at: u64, bytes: u64, touch: Touch, _cause: Cause) {
        if bytes == 0 {
            return;
        }
        let start = pointer(at, bytes).as_ptr();
        let byte = match touch {
            Touch::Read => {
                // The first byte of the range and of each line after it.
                let lines = std::iter::once(0)
                    .chain((LINE_BYTES - at as usize % LINE_BYTES..bytes as usize).step_by(LINE_BYTES));
                // SAFETY: bytes of the range; memory from the kernel is always initialised.
                lines.for_each(|offset| _ = unsafe { start.add(offset).read_volatile() });
                return;
            }
            Touch::WriteZero => 0,
            Touch::Write => APPLICATION_BYTE,
        };
        // SAFETY: a range of the region, without Rust objects.
        unsafe { start.write_bytes(byte, bytes as usize) };
    }

    /// Page by page, each read before its write.
    fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let mut done = 0;
        while done < bytes {
            let (source, target) = (from + done, to + done);
            let to_page_end = |at: u64| PAGE_BYTES - at % PAGE_BYTES;
            let step = to_page_end(source).min(to_page_end(target)).min(bytes - done);
            let (source, target) = (pointer(source, step).as_ptr(), pointer(target, step).as_ptr());
            // SAFETY: ranges of the region that do not overlap, as the trait requires; a copy of overlapping ranges would
            // only leave other bytes of the program, as `copy` allows overlaps.
            unsafe { std::ptr::copy(source, target, step as usize) };
            done += step;
        }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

impl<D, O: SpaceOs> Replayable<O> for OnSpace<D, MmapSpace<O>>
where
    Self: Heaps,
{
    fn with_os<T>(&self, pass: impl FnOnce(&O) -> T) -> T {
        pass(&self.memory().os)
    }

    fn addresses(&self) -> Range<u64> {
        Region::START..Region::START + Region::BYTES
    }

    fn each_piece(&self, mut each: impl FnMut(u64, Range<u64>)) {
        self.memory().region.named_pages().for_each(|(name, pages)| each(name, pages));
    }

    fn lock_as(&self, lock: MemoryLock) -> Result<(), io::Error> {
        let memory = self.memory();
        let failed = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        memory.os.lock_process(lock).map_err(failed)?;
        if lock.current {
            for range in memory.region.ranges() {
                let at = pointer(range.start, range.end - range.start);
                // SAFETY: locking changes no contents, and the range belongs to the space.
                unsafe { memory.os.lock(at, bytes_of(range), lock.locking()) }.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn note_own(&self, _replayed: &mut Replayed) {}
}

impl SpaceOs for Counted {
    unsafe fn resize(&self, at: NonNull<u8>, bytes: usize, to: NonNull<u8>, new_bytes: usize) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        self.counting_mremap(|| unsafe { Syscalls.resize(at, bytes, to, new_bytes) })
    }
}

impl SpaceOs for ObservedOs {
    unsafe fn resize(&self, at: NonNull<u8>, bytes: usize, to: NonNull<u8>, new_bytes: usize) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        self.observing_resize((at, bytes), (to, new_bytes), |counted| unsafe {
            counted.resize(at, bytes, to, new_bytes)
        })
    }
}

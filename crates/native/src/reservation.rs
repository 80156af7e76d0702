//! The address range of an allocator: one MAP_NORESERVE mapping, laid out by the policy.

use std::io;
use std::ptr::NonNull;

use hksim_policy::layout::{BASE_ADDRESS, Layout};

/// Why address space could not be reserved.
#[derive(Debug)]
pub struct ReserveError {
    /// Bytes requested.
    pub bytes: u64,
    /// The kernel's error.
    pub source: io::Error,
}

impl std::fmt::Display for ReserveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "cannot reserve {} MiB of address space: {} (try a smaller --arena or a higher `ulimit -v`)",
            self.bytes >> 20,
            self.source
        )
    }
}

impl std::error::Error for ReserveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Maps private anonymous memory at address `at`, or anywhere if `at` is 0. Never replaces a mapping.
#[cfg(not(miri))]
fn map_at(at: usize, bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    // SAFETY: without MAP_FIXED no existing mapping is changed.
    let got = unsafe { libc::mmap(at as *mut libc::c_void, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    match NonNull::new(got.cast::<u8>()) {
        Some(base) if got != libc::MAP_FAILED => Ok(base),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unmaps a range that [`map_at`] returned. It must not be in use.
#[cfg(not(miri))]
fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the range comes from `map_at`.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
}

/// Under Miri: allocates zeroed memory, whose address cannot be chosen. A request for an address fails before anything
/// is allocated, because the memory is never freed.
#[cfg(miri)]
fn map_at(at: usize, bytes: usize, _: libc::c_int) -> io::Result<NonNull<u8>> {
    if at != 0 {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).map_err(io::Error::other)?;
    // SAFETY: never empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Parts of an allocation cannot be freed under Miri, so the memory is leaked.
#[cfg(miri)]
fn unmap(_: NonNull<u8>, _: usize) {}

/// One private anonymous mapping, unmapped on drop.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
}

/// Distance between the base addresses that are tried. It is a multiple of every alignment.
const BASE_STEP: usize = 1 << 40;
const BASES: usize = 64;

impl Reservation {
    /// Maps a layout at the first free base, such that the arena's address is a multiple of
    /// [`base_align`](Layout::base_align).
    ///
    /// # Errors
    /// The address space is limited (`RLIMIT_AS`, `overcommit_memory=2`).
    pub fn map(layout: &Layout) -> Result<Reservation, ReserveError> {
        let refused = |source| ReserveError { bytes: layout.bytes(), source };
        let Ok(bytes) = usize::try_from(layout.bytes()) else {
            return Err(refused(io::Error::from_raw_os_error(libc::ENOMEM)));
        };
        let before_arena = (layout.arena.next_multiple_of(layout.base_align) - layout.arena) as usize;
        for attempt in 0..BASES {
            let at = BASE_ADDRESS as usize + attempt * BASE_STEP + before_arena;
            match map_at(at, bytes, libc::MAP_FIXED_NOREPLACE) {
                Ok(base) if base.as_ptr() as usize == at => return Ok(Reservation { base, bytes }),
                Ok(elsewhere) => {
                    // The kernel does not support MAP_FIXED_NOREPLACE, or a tool reserves this part of the address
                    // space.
                    unmap(elsewhere, bytes);
                    break;
                }
                Err(source) if source.raw_os_error() == Some(libc::ENOMEM) => return Err(refused(source)),
                Err(_) => {}
            }
        }
        Reservation::anywhere(bytes, before_arena, layout.base_align as usize).map_err(refused)
    }

    /// Maps more than needed at an address that the kernel chooses, and unmaps the excess at both ends.
    fn anywhere(bytes: usize, behind_multiple: usize, align: usize) -> io::Result<Reservation> {
        let more = bytes.checked_add(align).ok_or(io::Error::from_raw_os_error(libc::ENOMEM))?;
        let got = map_at(0, more, 0)?;
        let start = got.as_ptr() as usize;
        let skip = (align + behind_multiple - start % align) % align;
        // SAFETY: `skip` is below `align`, so at least `bytes` bytes of the mapping follow it.
        let (base, end) = unsafe { (got.add(skip), got.add(skip + bytes)) };
        if skip > 0 {
            unmap(got, skip);
        }
        if skip < align {
            unmap(end, align - skip);
        }
        Ok(Reservation { base, bytes })
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        unmap(self.base, self.bytes);
    }
}

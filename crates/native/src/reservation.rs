//! The address range an allocator lives in: one NORESERVE map, laid out by the policy.

use std::io;
use std::ptr::NonNull;

use hksim_policy::layout::{BASE_ADDRESS, Layout};

/// Why no address range could be had.
#[derive(Debug)]
pub struct ReserveError {
    /// Bytes asked for.
    pub bytes: u64,
    /// What the kernel said.
    pub source: io::Error,
}

impl std::fmt::Display for ReserveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "cannot reserve {} MiB of address space: {} (a smaller --arena, or a higher `ulimit -v`, may do)",
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

/// One private anonymous map, unmapped on drop.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
}

/// From one base that is tried to the next: a multiple of every alignment.
const BASE_STEP: usize = 1 << 40;
const BASES: usize = 64;

impl Reservation {
    /// Maps a layout at a base that it can have, with one successful `mmap`.
    ///
    /// # Errors
    /// Where address space is limited (`RLIMIT_AS`, `overcommit_memory=2`).
    pub fn map(layout: &Layout) -> Result<Reservation, ReserveError> {
        let bytes = usize::try_from(layout.bytes()).unwrap_or(usize::MAX);
        let mut source = io::Error::from_raw_os_error(libc::ENOMEM);
        for attempt in 0..BASES {
            let at = (BASE_ADDRESS as usize + attempt * BASE_STEP) as *mut libc::c_void;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: NOREPLACE: no existing map is touched.
            let got = unsafe { libc::mmap(at, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if got != libc::MAP_FAILED {
                if got == at
                    && let Some(base) = NonNull::new(got.cast::<u8>())
                {
                    return Ok(Reservation { base, bytes });
                }
                // SAFETY: a kernel that does not know NOREPLACE put the map elsewhere; it is ours alone.
                unsafe { libc::munmap(got, bytes) };
            }
            source = io::Error::last_os_error();
            if source.raw_os_error() != Some(libc::EEXIST) {
                break;
            }
        }
        Err(ReserveError { bytes: layout.bytes(), source })
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
        // SAFETY: the map is ours, and whoever owned the reservation has no more use for it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

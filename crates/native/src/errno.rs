//! The calling thread's `errno`: `free` leaves it as it is (POSIX 2024), whatever the kernel refuses meanwhile.

/// Does something, and leaves `errno` as it was.
pub(crate) fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the location is this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

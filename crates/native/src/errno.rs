//! Preserves the calling thread's `errno`: `free` must not change it (POSIX 2024), even if a system call fails.

/// Runs `work` and restores `errno`.
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

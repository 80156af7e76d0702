//! `mlockall` and `munlockall`: the kernel's own would make all of the arena present.

use std::ffi::c_int;

use hksim_native::process;

fn locked(flags: c_int) -> c_int {
    match process::lock_all(flags) {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the location is this thread's errno.
            unsafe { *libc::__errno_location() = errno.0 };
            -1
        }
    }
}

/// POSIX `mlockall`. Of the arena it locks the SuperSlabs that were taken, and with `MCL_FUTURE` those that will be.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    if flags == 0 {
        // SAFETY: the location is this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return -1;
    }
    locked(flags)
}

/// POSIX `munlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    locked(0)
}

//! `mlockall` and `munlockall`. The kernel's own `mlockall` would make the whole arena resident.

use std::ffi::c_int;

use hksim_native::process;
use hksim_policy::Errno;

fn answer(locked: Result<(), Errno>) -> c_int {
    match locked {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the location is this thread's errno.
            unsafe { *libc::__errno_location() = errno.0 };
            -1
        }
    }
}

/// POSIX `mlockall`. In the arena, this function locks the SuperSlabs that were ever taken and, with `MCL_FUTURE`,
/// those taken later.
#[unsafe(no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    answer(if flags == 0 { Err(Errno(libc::EINVAL)) } else { process::lock_all(flags) })
}

/// POSIX `munlockall`.
#[unsafe(no_mangle)]
pub extern "C" fn munlockall() -> c_int {
    answer(process::lock_all(0))
}

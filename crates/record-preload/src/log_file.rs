//! The name and the first page of a log.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::event_log::{CHUNK_BYTES, COMMAND_BYTES, Control, LOG_MAGIC, LOG_SUFFIX};
use crate::session::PATH_BYTES;
use crate::{arch, memory_policy, sys};

/// Offset of a chunk in its log.
pub fn chunk_offset(number: u32) -> u64 {
    u64::from(number) * CHUNK_BYTES as u64
}

/// Writes `SESSION/PID-NUMBER.spool` and a zero byte; false if it does not fit.
pub fn write_path(path: &mut [u8; PATH_BYTES], session: &CStr, pid: u32, number: u32) -> bool {
    let mut rest = &mut path[..];
    let mut digits = [0; 10];
    let mut put = |bytes: &[u8]| {
        let Some((to, after)) = core::mem::take(&mut rest).split_at_mut_checked(bytes.len()) else {
            return false;
        };
        to.copy_from_slice(bytes);
        rest = after;
        true
    };
    put(session.to_bytes())
        && put(b"/")
        && put(decimal(pid, &mut digits))
        && put(b"-")
        && put(decimal(number, &mut digits))
        && put(LOG_SUFFIX.as_bytes())
        && put(b"\0")
}

/// The decimal digits of a number.
pub fn decimal(mut value: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
        first = at;
        if value == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or_default()
}

/// Fills the first page of a new log.
pub fn fill_control(control: &mut Control, pid: u32, origin: u32) {
    control.pid = pid;
    control.parent_pid = sys::parent_pid();
    control.origin = origin;
    control.chunks = 1;
    control.start_ticks = arch::ticks();
    (control.thp_disable, control.personality) = memory_policy::in_force();
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { sys::open(c"/proc/self/cmdline".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd >= 0 {
        control.command_bytes = sys::read(fd, &mut control.command).min(COMMAND_BYTES) as u32;
        sys::close(fd);
    }
    // SAFETY: the field is aligned; the store is atomic so that it comes after all the others.
    unsafe { AtomicU64::from_ptr(&raw mut control.magic) }.store(LOG_MAGIC, Ordering::Release);
}

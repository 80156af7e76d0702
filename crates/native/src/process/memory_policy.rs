//! The process-wide memory settings of the program, read from the kernel without allocating.

use std::str;

/// The result of `PR_GET_THP_DISABLE`: 0 if the system's THP modes decide, 1 if the program gets no huge pages, 3 if
/// only advised memory may get huge pages. Also 0 if the kernel does not support the call.
pub fn thp_disable() -> u64 {
    let none: libc::c_ulong = 0;
    // SAFETY: touches no memory.
    let answer = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) };
    u64::try_from(answer).unwrap_or(0)
}

/// Bytes locked by `mlockall`, `mlock` and similar calls; 0 if /proc is not readable.
pub fn locked_bytes() -> u64 {
    let mut text = [0; 4096];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string, the buffer has `text.len()` bytes, and an opened descriptor is closed.
    let used = unsafe {
        let status = libc::open(c"/proc/self/status".as_ptr(), flags);
        let used = libc::read(status, text.as_mut_ptr().cast(), text.len());
        libc::close(status);
        used
    };
    let text = text.get(..usize::try_from(used).unwrap_or(0)).unwrap_or_default();
    let field = str::from_utf8(text).ok().and_then(|text| text.split("VmLck:").nth(1));
    let kibibytes = field.and_then(|field| field.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// A description of the setting, if it restricts huge pages.
pub fn thp_disable_text(thp_disable: u64) -> Option<&'static str> {
    match thp_disable {
        0 => None,
        3 => Some("the program gets huge pages only in memory that it advises (PR_SET_THP_DISABLE)"),
        _ => Some("the program has switched huge pages off for itself (PR_SET_THP_DISABLE)"),
    }
}

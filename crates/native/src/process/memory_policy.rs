//! What the program has asked of the kernel for all of its memory, as the kernel tells it. Without allocating.

use std::str;

/// What `PR_GET_THP_DISABLE` returns: 0 where the modes decide about huge pages; 1 where the program has none; 3 where only advised
/// memory may have them. 0 where the kernel does not know the question.
pub fn thp_disable() -> u64 {
    let none: libc::c_ulong = 0;
    // SAFETY: touches no memory.
    let answer = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, none, none, none, none) };
    u64::try_from(answer).unwrap_or(0)
}

/// Bytes locked by `mlockall` and its like; 0 where /proc does not tell.
pub fn locked_bytes() -> u64 {
    let mut text = [0; 4096];
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a string, the buffer holds that many bytes; a descriptor that was opened is closed.
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

/// In words, where it keeps huge pages from the program.
pub fn thp_disable_text(thp_disable: u64) -> Option<&'static str> {
    match thp_disable {
        0 => None,
        3 => Some("the program has huge pages only where advised (PR_SET_THP_DISABLE)"),
        _ => Some("the program has switched huge pages off for itself (PR_SET_THP_DISABLE)"),
    }
}

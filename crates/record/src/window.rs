//! Chunks for processes whose system-call filter forbids allocating them.
//!
//! Such a process has mapped a window of its log in advance. This module allocates file space for the window's chunks
//! before the process needs them, so that the process can take chunks without a system call.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::event_log::{CHUNK_BYTES, Control, Window};
use crate::written_file;

/// Number of chunks granted in advance, within the window: 64 MiB, eight million events.
const AHEAD: u32 = 256;

/// Grants chunks to the process of the log at `path`, which is open as `log`, if the process has a window and has used
/// some of its chunks.
///
/// # Errors
/// The log cannot be read or written, or the disk is full.
pub fn grant(path: &Path, log: &File) -> io::Result<()> {
    const AT: u64 = offset_of!(Control, window) as u64;
    let mut bytes = [0; size_of::<Window>()];
    log.read_exact_at(&mut bytes, AT)?;
    // SAFETY: the array has the size of Window, for which every bit pattern is valid.
    let Window { first, chunks, granted, taken } = unsafe { bytes.as_ptr().cast::<Window>().read_unaligned() };
    let goal = taken.saturating_add(AHEAD).min(chunks);
    // A damaged control page must not cause the whole disk to be allocated.
    if goal <= granted || goal - granted > AHEAD {
        return Ok(());
    }
    let log = written_file::open_to_write(path)?;
    let offset = (u64::from(first) + u64::from(granted)) * CHUNK_BYTES as u64;
    let length = u64::from(goal - granted) * CHUNK_BYTES as u64;
    // SAFETY: touches no memory.
    match unsafe { libc::posix_fallocate(log.as_raw_fd(), offset as i64, length as i64) } {
        0 => log.write_all_at(&goal.to_ne_bytes(), AT + offset_of!(Window, granted) as u64),
        why => Err(io::Error::from_raw_os_error(why)),
    }
}

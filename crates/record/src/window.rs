//! Frames for processes that may not get any themselves, as a system-call filter forbids it.
//!
//! Such a process has mapped a window of its spool before. This gives the window's frames space in the file, somewhat ahead of
//! the process, which takes them without a system call.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::spool::{Control, FRAME_BYTES, Window};

/// Frames that a process finds granted after a look, as far as its window goes: 64 MiB, eight million events.
const AHEAD: u32 = 256;

/// Grants frames to the process of the spool at `path`, open as `spool`, if it has a window and took some of those it had.
///
/// # Errors
/// The spool cannot be read or written, or the disk is full.
pub fn grant(path: &Path, spool: &File) -> io::Result<()> {
    const AT: u64 = offset_of!(Control, window) as u64;
    let mut bytes = [0; size_of::<Window>()];
    spool.read_exact_at(&mut bytes, AT)?;
    // SAFETY: as many bytes as Window has, and every bit pattern is one.
    let Window { first, frames, granted, taken } = unsafe { bytes.as_ptr().cast::<Window>().read_unaligned() };
    let goal = taken.saturating_add(AHEAD).min(frames);
    // A damaged page shall not take the whole disk.
    if goal <= granted || goal - granted > AHEAD {
        return Ok(());
    }
    let spool = OpenOptions::new().write(true).open(path)?;
    let offset = (u64::from(first) + u64::from(granted)) * FRAME_BYTES as u64;
    let length = u64::from(goal - granted) * FRAME_BYTES as u64;
    // SAFETY: touches no memory.
    match unsafe { libc::posix_fallocate(spool.as_raw_fd(), offset as i64, length as i64) } {
        0 => spool.write_all_at(&goal.to_ne_bytes(), AT + offset_of!(Window, granted) as u64),
        why => Err(io::Error::from_raw_os_error(why)),
    }
}

//! Keeps the machine's memory-management modes as they are while a test compares them with the kernel.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The modes as they are, until dropped.
pub struct HeldModes(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

/// Waits until nobody changes the modes, and keeps others from changing them: runs that do so lock the same folder
/// exclusively (`hksim-conformance`). `None` if this machine has no such folder, or it cannot be locked.
pub fn hold() -> Option<HeldModes> {
    let folder = File::open("/sys/kernel/mm").ok()?;
    // SAFETY: an open descriptor.
    (unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_SH) } == 0).then_some(HeldModes(folder))
}

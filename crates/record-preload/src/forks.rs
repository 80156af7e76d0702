//! Detects when forked children stop sharing their parent's memory.
//!
//! The parent maps a file of the session while it forks, and unmaps it afterwards. So only the child keeps the mapping,
//! and its own forked children inherit it. The kernel closes the file when the last of them ends or executes another
//! program; `hksim` detects the close (`record/src/children.rs`). The child itself does nothing. If another thread
//! forks at the same time, its child may inherit the mapping too. The first child then appears to share the memory
//! until both children have ended.

use core::ffi::c_void;

use libc::pid_t;

use crate::event_log::{CONTROL_BYTES, FORKED_SUFFIX, FORKING_SUFFIX};
use crate::process::Process;
use crate::session::PATH_BYTES;
use crate::{session, sys};

/// A file that is mapped for the next child.
pub struct Shared {
    process: &'static Process,
    mapping: *mut c_void,
    path: [u8; PATH_BYTES],
}

impl Shared {
    /// Maps a file for the child that is about to be forked; `None` on failure, or if the ends of children are not
    /// recorded.
    pub fn begin() -> Option<Self> {
        let _errno = sys::Errno::save();
        let process = Process::current()?;
        // Numbered events have no times with which the end of a child could be ordered.
        if !session::is_recording() || session::numbers_events() {
            return None;
        }
        let path = process.numbered_path(process.number_fork(), FORKING_SUFFIX)?;
        // SAFETY: the path ends with a zero byte, after the offset at which its name begins.
        let fd =
            unsafe { session::open_file(&path, process.name_start(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        // The file stays empty: the mapping is neither read nor written.
        let mapping = sys::map_shared(fd, 0, CONTROL_BYTES);
        sys::close(fd);
        let shared = Self { process, mapping, path };
        if mapping.is_null() {
            shared.remove();
            return None;
        }
        Some(shared)
    }

    /// Leaves the mapping to the child; `child` is the result of `fork`.
    pub fn leave_to(self, child: pid_t) {
        if child == 0 {
            return;
        }
        let _errno = sys::Errno::save();
        let named = u32::try_from(child).ok().and_then(|child| self.process.numbered_path(child, FORKED_SUFFIX));
        // SAFETY: both paths end with a zero byte, after the offset at which their names begin.
        if !named.is_some_and(|named| unsafe { session::rename_file(&self.path, &named, self.process.name_start()) }) {
            self.remove();
        }
        sys::unmap(self.mapping, CONTROL_BYTES);
    }

    fn remove(&self) {
        // SAFETY: as above.
        unsafe { session::remove_file(&self.path, self.process.name_start()) };
    }
}

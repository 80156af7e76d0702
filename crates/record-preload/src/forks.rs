//! Detects when forked children stop sharing their parent's memory.
//!
//! The parent maps a file of the session while it forks, and unmaps it afterwards. So only the child keeps the mapping,
//! and its own forked children inherit it. The kernel closes the file when the last of them ends or executes another
//! program; `hksim` detects the close (`record/src/children.rs`). The child itself does nothing. If another thread
//! forks at the same time, its child may inherit the mapping too. The first child then appears to share the memory
//! until both children have ended.

use core::ffi::c_void;
use core::ptr::null_mut;

use libc::pid_t;

use crate::event_log::{CONTROL_BYTES, FORKED_SUFFIX, FORKING_SUFFIX};
use crate::process::Process;
use crate::{own_stack, session, sys};

/// A file that is mapped for the next child.
pub struct Shared {
    process: &'static Process,
    mapping: *mut c_void,
    /// The number in the file's name.
    number: u32,
}

impl Shared {
    /// Maps a file for the child that is about to be forked; `None` on failure, or if the ends of children are not
    /// recorded.
    pub fn begin() -> Option<Self> {
        own_stack::run(|| {
            let process = Process::current()?;
            // Numbered events have no times with which the end of a child could be ordered.
            if !session::is_recording() || session::numbers_events() {
                return None;
            }
            let shared = Self { process, mapping: null_mut(), number: process.number_fork() };
            let path = process.numbered_path(shared.number, FORKING_SUFFIX)?;
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
            // SAFETY: the path ends with a zero byte, after the offset at which its name begins.
            let fd = unsafe { session::open_file(&path, process.name_start(), flags) };
            if fd < 0 {
                return None;
            }
            // The file stays empty: the mapping is neither read nor written.
            let mapping = sys::map_shared(fd, 0, CONTROL_BYTES);
            sys::close(fd);
            if mapping.is_null() {
                shared.leave_nothing();
                return None;
            }
            Some(Self { mapping, ..shared })
        })
    }

    /// Leaves the mapping to the child; `child` is the result of `fork`.
    pub fn leave_to(self, child: pid_t) {
        if child == 0 {
            return;
        }
        own_stack::run(|| {
            if !u32::try_from(child).is_ok_and(|child| self.name_after(child)) {
                self.leave_nothing();
            }
            sys::unmap(self.mapping, CONTROL_BYTES);
        });
    }

    fn name_after(&self, child: u32) -> bool {
        let path = |number, suffix| self.process.numbered_path(number, suffix);
        let (Some(from), Some(to)) = (path(self.number, FORKING_SUFFIX), path(child, FORKED_SUFFIX)) else {
            return false;
        };
        // SAFETY: both paths end with a zero byte, after the offset at which their names begin.
        unsafe { session::rename_file(&from, &to, self.process.name_start()) }
    }

    fn leave_nothing(&self) {
        if let Some(path) = self.process.numbered_path(self.number, FORKING_SUFFIX) {
            // SAFETY: as above.
            unsafe { session::remove_file(&path, self.process.name_start()) };
        }
    }
}

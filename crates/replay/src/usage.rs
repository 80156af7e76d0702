//! The resource usage that the kernel charges to this process, or to a child that has ended.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Counters of `getrusage`, of all threads together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// `ru_minflt`.
    pub(crate) faults: u64,
    /// User time.
    pub(crate) user: Duration,
    /// System time.
    pub(crate) sys: Duration,
}

impl Usage {
    /// The counters now.
    pub(crate) fn now() -> Usage {
        // SAFETY: `rusage` is valid when zeroed, and the kernel only writes to it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        Usage::of(&usage)
    }

    fn of(usage: &libc::rusage) -> Usage {
        let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        Usage { faults: usage.ru_minflt as u64, user: time(usage.ru_utime), sys: time(usage.ru_stime) }
    }

    /// The difference from `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            faults: self.faults.saturating_sub(earlier.faults),
            user: self.user.saturating_sub(earlier.user),
            sys: self.sys.saturating_sub(earlier.sys),
        }
    }
}

/// Waits for a child. Returns also its processor nanoseconds from its fork until its memory was released.
pub(crate) fn wait(child: &Child) -> io::Result<(ExitStatus, u64)> {
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: `rusage` is valid when zeroed.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: valid places for the status and the usage. The child was not waited for, so the number is its own.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let why = io::Error::last_os_error();
        if why.kind() != io::ErrorKind::Interrupted {
            return Err(why);
        }
    }
    let Usage { user, sys, .. } = Usage::of(&usage);
    Ok((ExitStatus::from_raw(status), (user + sys).as_nanos() as u64))
}

//! The resource usage that the kernel charges to this process.

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

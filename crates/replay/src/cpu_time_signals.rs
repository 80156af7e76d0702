//! Signals to a thread at regular intervals of its processor time. Their handler looks at the thread's variables.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use hksim_linux_probe::cpu_modes::SAMPLE_PERIOD;
use hksim_linux_probe::perf::{self, Request};
use libc::c_int;

/// The signal.
const SIGNAL: c_int = libc::SIGIO;

/// Sets who gets a file's signals (`fcntl.h` of Linux).
const F_SETOWN_EX: c_int = 15;
/// A thread.
const F_OWNER_TID: c_int = 0;

/// The kernel's `f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: c_int,
    pid: libc::pid_t,
}

/// Sends [`SIGNAL`] to the thread that opened it after every [`SAMPLE_PERIOD`] of its processor time, from
/// [`CpuTimeSignals::enable`] to the drop. Sent to the process, another thread could take the signals, and on a busy machine
/// it runs so late that they merge.
#[derive(Debug)]
pub(crate) struct CpuTimeSignals {
    event: OwnedFd,
}

impl CpuTimeSignals {
    /// Opens the event, disabled, and installs the handler. The handler may only do what a signal handler may.
    ///
    /// # Errors
    /// The kernel refuses the event: usually, `kernel.perf_event_paranoid` is above 1 and the user is not root.
    pub(crate) fn open(handler: extern "C" fn(c_int)) -> io::Result<CpuTimeSignals> {
        let request = Request {
            kind: perf::TYPE_SOFTWARE,
            config: perf::SOFTWARE_CPU_CLOCK,
            sample_period: SAMPLE_PERIOD.as_nanos() as u64,
            flags: perf::FLAG_DISABLED,
            ..Request::default()
        };
        let event = perf::open(&request, None)?;
        let file = event.as_raw_fd();
        // SAFETY: the action is zeroed, which is valid, and its handler has the type that it has without `SA_SIGINFO`.
        // The file is open; the kernel reads `owner`, and the other operation takes an integer.
        let done = unsafe {
            let owner = Owner { kind: F_OWNER_TID, pid: libc::gettid() };
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) == 0
                && libc::fcntl(file, F_SETOWN_EX, &raw const owner) == 0
                && libc::fcntl(file, libc::F_SETFL, libc::O_ASYNC) == 0
        };
        if done { Ok(CpuTimeSignals { event }) } else { Err(io::Error::last_os_error()) }
    }

    /// Starts the signals.
    pub(crate) fn enable(&self) {
        perf::enable(&self.event);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use hksim_linux_probe::cpu_modes::spin;

    static SIGNALS: AtomicU64 = AtomicU64::new(0);

    extern "C" fn count(_signal: c_int) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn signals_count_processor_time() {
        let signals = match CpuTimeSignals::open(count) {
            Ok(signals) => signals,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        signals.enable();
        spin(Duration::from_millis(100));
        drop(signals);
        // 400, if none is merged with another; the handler itself takes processor time.
        let found = SIGNALS.load(Ordering::Relaxed);
        assert!((200..800).contains(&found), "{found} signals");
    }
}

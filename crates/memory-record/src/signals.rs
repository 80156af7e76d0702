//! Signals to the recorder while the program runs: Ctrl-C ends the program, not the recording.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use hksim_linux_probe::signal_handlers::{ENDING, Handler, SignalHandlers};
use libc::{c_int, c_void, pid_t, siginfo_t};

/// The recorded program while it exists; 0 otherwise.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before the program was created; 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// While this value exists, signals that would end this process go to the recorded program, and the recording ends with
/// it. Handlers belong to the whole process, so one value at a time may exist.
pub struct SignalsToProgram {
    _handlers: SignalHandlers,
}

impl SignalsToProgram {
    /// Installs the handlers. Ignored signals stay ignored (nohup).
    pub fn begin() -> Self {
        EARLY.store(0, Ordering::SeqCst);
        // SAFETY: the handler stores a number or calls `kill`.
        Self { _handlers: unsafe { SignalHandlers::install(ENDING.map(|signal| (signal, forward as Handler)), 0) } }
    }
}

/// While this value exists, the process gets the signals.
pub(crate) struct Recipient(());

impl Recipient {
    /// Also sends the signal that came before.
    pub fn begin(pid: pid_t) -> Self {
        PROGRAM.store(pid, Ordering::SeqCst);
        let signal = EARLY.swap(0, Ordering::SeqCst);
        if signal != 0 {
            // SAFETY: takes only numbers; the process is a child that is not reaped yet.
            unsafe { libc::kill(pid, signal) };
        }
        Self(())
    }
}

impl Drop for Recipient {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::SeqCst);
    }
}

/// Lets signals end the calling process again, between fork and exec: the handlers are inherited until exec.
///
/// # Safety
/// Only for a process that is about to execute a program.
pub(crate) unsafe fn restore_defaults() {
    for signal in ENDING {
        // SAFETY: plain data, valid when zeroed; system calls with valid pointers.
        unsafe {
            let mut now = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            if libc::sigaction(signal, null_mut(), &raw mut now) == 0 && now.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Forwards a signal that a process sent to the recorder. The terminal sends its signals to the program as well.
extern "C" fn forward(signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    if unsafe { (*info).si_code } > 0 {
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        // SAFETY: takes only numbers.
        program => unsafe {
            libc::kill(program, signal);
        },
    }
}

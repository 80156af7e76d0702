//! Signals to the recorder.
//!
//! While the program runs, `run.rs` handles them. Before and after, the first signal ends the work cleanly: no partial
//! file remains, and the recording is kept. A second signal of the same kind ends the process immediately.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hksim_linux_probe::signal_handlers::{ENDING, Handler, SignalHandlers};
use libc::{c_int, c_void, siginfo_t};

use crate::error::RecordError;

/// Signals that are meant for the recorder itself while the program runs.
pub const REQUESTS: [c_int; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// The signal that ends the work; 0 for none.
static ENDING_CAME: AtomicI32 = AtomicI32::new(0);

/// The number of users of the installed handlers, and the handlers. All users share them, because handlers belong to the
/// whole process.
static SHARED: Mutex<(usize, Vec<SignalHandlers>)> = Mutex::new((0, Vec::new()));

/// While this value exists, the first signal that would end the process only makes [`check`] fail.
pub struct Interruptible(());

impl Interruptible {
    /// Installs the handlers. Further values share the handlers of the first.
    pub fn begin() -> Self {
        let mut shared = lock();
        if shared.0 == 0 {
            ENDING_CAME.store(0, Ordering::SeqCst);
            let ending = ENDING.map(|signal| (signal, note_ending as Handler));
            // A request for a mark may arrive just after the program ends. Without a handler it would end the recorder.
            let late = REQUESTS.map(|signal| (signal, pass_over as Handler));
            // SAFETY: the handlers store a number, or do nothing.
            shared.1 =
                unsafe { vec![SignalHandlers::install(ending, libc::SA_RESETHAND), SignalHandlers::install(late, 0)] };
        }
        shared.0 += 1;
        Self(())
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        let mut shared = lock();
        shared.0 -= 1;
        if shared.0 == 0 {
            shared.1.clear();
        }
    }
}

fn lock() -> MutexGuard<'static, (usize, Vec<SignalHandlers>)> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether work may continue.
///
/// # Errors
/// A signal came.
pub fn check() -> Result<(), RecordError> {
    match ENDING_CAME.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(RecordError::Interrupted { signal }),
    }
}

extern "C" fn note_ending(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    ENDING_CAME.store(signal, Ordering::SeqCst);
}

extern "C" fn pass_over(_signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {}

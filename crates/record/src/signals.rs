//! Signals to the recorder.
//!
//! While the program runs, `run.rs` handles them. Before and after, the first signal ends the work cleanly: no partial
//! file remains, and the recording is kept. A second signal of the same kind ends the process immediately.

use std::mem::{MaybeUninit, take};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_void, siginfo_t};

use crate::error::RecordError;

/// Signals that end a process; while the program runs they are forwarded to it.
pub const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
/// Signals that are meant for the recorder itself while the program runs.
pub const REQUESTS: [c_int; 2] = [libc::SIGUSR1, libc::SIGUSR2];

/// The signal that ends the work; 0 for none.
static ENDING_CAME: AtomicI32 = AtomicI32::new(0);

/// The number of users of the installed handlers, and the previous handlers. All users share the installed handlers,
/// because handlers belong to the whole process.
static SHARED: Mutex<(usize, Installed)> = Mutex::new((0, Installed(Vec::new())));

/// Type of a signal handler.
pub type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installed handlers. Keeps the handlers that they replaced for [`Installed::restore`].
#[derive(Default)]
pub struct Installed(Vec<(c_int, libc::sigaction)>);

impl Installed {
    /// Installs a handler for each signal that is not ignored. Ignored signals must stay ignored (nohup).
    pub fn begin(handlers: impl IntoIterator<Item = (c_int, Handler)>, flags: c_int) -> Self {
        let install = |(signal, handler)| Some((signal, install(signal, handler, flags)?));
        Self(handlers.into_iter().filter_map(install).collect())
    }

    /// Restores the previous handlers.
    pub fn restore(&mut self) {
        for (signal, before) in take(&mut self.0) {
            // SAFETY: `before` was returned by sigaction itself.
            unsafe { libc::sigaction(signal, &raw const before, null_mut()) };
        }
    }
}

/// Installs a handler; `None` if the signal is ignored.
fn install(signal: c_int, handler: Handler, flags: c_int) -> Option<libc::sigaction> {
    // SAFETY: sigaction is plain data for which all zero is valid; the handlers are async-signal-safe.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(signal, null_mut(), &raw mut before) != 0 || before.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        (libc::sigaction(signal, &raw const action, null_mut()) == 0).then_some(before)
    }
}

/// While this value exists, the first signal that would end the process only makes [`check`] fail.
pub struct Interruptible(());

impl Interruptible {
    /// Installs the handlers. Further values share the handlers of the first.
    pub fn begin() -> Self {
        let mut shared = lock();
        if shared.0 == 0 {
            ENDING_CAME.store(0, Ordering::SeqCst);
            let ending = ENDING.map(|signal| (signal, note_ending as Handler));
            shared.1 = Installed::begin(ending, libc::SA_RESETHAND);
            // A request for a mark may arrive just after the program ends. Without a handler it would end the recorder.
            let late = Installed::begin(REQUESTS.map(|signal| (signal, pass_over as Handler)), 0);
            shared.1.0.extend(late.0);
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
            shared.1.restore();
        }
    }
}

fn lock() -> MutexGuard<'static, (usize, Installed)> {
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

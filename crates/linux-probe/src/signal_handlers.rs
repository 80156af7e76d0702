//! Handlers of signals that other processes and the terminal send to this one.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Signals that end a process, and that users and service managers send for that.
pub const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// A signal handler.
pub type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installed handlers. The handlers that they replaced come back when this value is dropped.
#[derive(Debug)]
#[must_use]
pub struct SignalHandlers(Vec<(c_int, libc::sigaction)>);

impl SignalHandlers {
    /// Installs a handler for each signal that is not ignored, with these flags beside `SA_SIGINFO` and `SA_RESTART`.
    /// Ignored signals stay ignored (nohup): unlike `SIG_IGN`, a handler is not inherited over exec.
    ///
    /// # Safety
    /// The handlers are async-signal-safe.
    pub unsafe fn install(handlers: impl IntoIterator<Item = (c_int, Handler)>, flags: c_int) -> Self {
        let install = |(signal, handler)| {
            // SAFETY: the caller's promise.
            let before = unsafe { install(signal, handler, flags, |before| before != libc::SIG_IGN)? };
            Some((signal, before))
        };
        Self(handlers.into_iter().filter_map(install).collect())
    }

    /// Installs the handler of a recorder whose subject runs on when the recording ends: for each of [`ENDING`] that is
    /// not ignored, and for SIGINT always. A script starts its background jobs with SIGINT ignored, and ends such a
    /// recording by `kill -INT`.
    ///
    /// # Safety
    /// The handler is async-signal-safe.
    pub unsafe fn install_to_end(handler: Handler) -> Self {
        let install = |signal| {
            let replaces = |before| before != libc::SIG_IGN || signal == libc::SIGINT;
            // SAFETY: the caller's promise.
            Some((signal, unsafe { install(signal, handler, 0, replaces)? }))
        };
        Self(ENDING.into_iter().filter_map(install).collect())
    }
}

impl Drop for SignalHandlers {
    fn drop(&mut self) {
        for (signal, before) in &self.0 {
            // SAFETY: `before` was returned by sigaction itself.
            unsafe { libc::sigaction(*signal, before, null_mut()) };
        }
    }
}

/// A signal that came while an [`EndingSignals`] existed; 0 for none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

/// While this value exists, signals that would end this process are noted instead, so that what it does can be ended in
/// order. Handlers belong to the whole process, so one value at a time may exist.
#[derive(Debug)]
pub struct EndingSignals {
    _handlers: SignalHandlers,
}

impl EndingSignals {
    /// Installs the handlers. Ignored signals stay ignored (nohup), except SIGINT.
    #[must_use]
    pub fn begin() -> Self {
        ENDED_BY.store(0, Ordering::SeqCst);
        // SAFETY: the handler stores a number.
        Self { _handlers: unsafe { SignalHandlers::install_to_end(note_end) } }
    }

    /// Whether a signal came.
    pub fn came(&self) -> bool {
        ENDED_BY.load(Ordering::SeqCst) != 0
    }
}

extern "C" fn note_end(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
    ENDED_BY.store(signal, Ordering::SeqCst);
}

/// Installs a handler if it `replaces` the action before; `None` otherwise.
///
/// # Safety
/// The handler is async-signal-safe.
unsafe fn install(
    signal: c_int,
    handler: Handler,
    flags: c_int,
    replaces: impl Fn(libc::sighandler_t) -> bool,
) -> Option<libc::sigaction> {
    // SAFETY: sigaction is plain data for which all zero is valid; system calls with valid pointers.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(signal, null_mut(), &raw mut before) != 0 || !replaces(before.sa_sigaction) {
            return None;
        }
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        (libc::sigaction(signal, &raw const action, null_mut()) == 0).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CAME: AtomicI32 = AtomicI32::new(0);

    extern "C" fn note(signal: c_int, _info: *mut siginfo_t, _context: *mut c_void) {
        CAME.store(signal, Ordering::SeqCst);
    }

    /// What the kernel has for a signal of no other test.
    fn action_of(signal: c_int) -> usize {
        // SAFETY: sigaction is plain data; the kernel writes to it.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            assert_eq!(libc::sigaction(signal, null_mut(), &raw mut action), 0);
            action.sa_sigaction
        }
    }

    #[test]
    fn handlers_are_installed_unless_the_signal_is_ignored_and_removed_again() {
        let (used, ignored) = (libc::SIGURG, libc::SIGWINCH);
        // SAFETY: no handler.
        unsafe { libc::signal(ignored, libc::SIG_IGN) };
        // SAFETY: the handler stores a number.
        let handlers = unsafe { SignalHandlers::install([(used, note as Handler), (ignored, note as Handler)], 0) };
        // SAFETY: to this thread, which has a handler.
        unsafe { libc::raise(used) };
        assert_eq!(CAME.load(Ordering::SeqCst), used);
        assert_eq!((action_of(used), action_of(ignored)), (note as *const () as usize, libc::SIG_IGN));
        drop(handlers);
        assert_eq!((action_of(used), action_of(ignored)), (libc::SIG_DFL, libc::SIG_IGN));
        // SAFETY: no handler.
        unsafe { libc::signal(ignored, libc::SIG_DFL) };
    }

    #[test]
    fn an_interrupt_ends_a_recording_even_if_it_is_ignored() {
        let (interrupt, hangup) = (libc::SIGINT, libc::SIGHUP);
        // SAFETY: no handlers.
        let before = unsafe { [interrupt, hangup].map(|signal| (signal, libc::signal(signal, libc::SIG_IGN))) };
        // SAFETY: the handler stores a number.
        let handlers = unsafe { SignalHandlers::install_to_end(note) };
        assert_eq!((action_of(interrupt), action_of(hangup)), (note as *const () as usize, libc::SIG_IGN));
        drop(handlers);
        assert_eq!(action_of(interrupt), libc::SIG_IGN);
        for (signal, action) in before {
            // SAFETY: the action as it was.
            unsafe { libc::signal(signal, action) };
        }
    }
}

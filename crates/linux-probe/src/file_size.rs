//! The limit on file sizes (`ulimit -f`).

extern "C" fn go_on(_signal: libc::c_int) {}

/// From now on, a write beyond the limit fails like a write to a full disk, instead of ending this process. Programs
/// that this process starts are not affected: unlike an ignored signal, a handler does not survive `exec`.
pub fn ignore_sigxfsz() {
    let handler: extern "C" fn(libc::c_int) = go_on;
    // SAFETY: the handler does nothing, so it may run at any time.
    unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
}

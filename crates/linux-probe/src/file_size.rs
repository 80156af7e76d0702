//! The limit of file sizes (`ulimit -f`).

extern "C" fn go_on(_signal: libc::c_int) {}

/// From now on a write beyond the limit fails, as one to a full disk does, and no longer ends this process. Programs started
/// from here end as ever: a handler, unlike an ignored signal, does not outlive `exec`.
pub fn let_writes_fail() {
    let handler: extern "C" fn(libc::c_int) = go_on;
    // SAFETY: the handler does nothing, so it may run at any time.
    unsafe { libc::signal(libc::SIGXFSZ, handler as libc::sighandler_t) };
}

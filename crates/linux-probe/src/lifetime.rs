//! Processes that must not outlive their parent.

/// Makes the kernel kill the calling process when the thread that started it ends. Otherwise as
/// [`signal_at_parents_end`].
pub fn die_with_parent(parent: libc::pid_t) {
    signal_at_parents_end(parent, libc::SIGKILL);
}

/// Makes the kernel send a signal to the calling process when the thread that started it ends. Exits immediately if that
/// thread's process, `parent`, has already ended: the kernel does not report an end that precedes the request.
///
/// This function only makes system calls. It may run between fork and exec, even in a child of a multithreaded program.
pub fn signal_at_parents_end(parent: libc::pid_t, signal: libc::c_int) {
    // SAFETY: system calls that touch no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

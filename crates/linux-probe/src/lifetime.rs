//! Processes that must not outlive their parent.

/// Makes the kernel kill the calling process when the thread that started it ends. If that thread's process, `parent`,
/// has already ended, exits at once: the kernel reports no end from before the request.
///
/// Only makes system calls, so it may run between fork and exec, and in the child of a program with threads.
pub fn die_with_parent(parent: libc::pid_t) {
    // SAFETY: system calls that touch no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

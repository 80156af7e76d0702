//! Processes that must not outlive their parent.

/// Has the kernel kill the calling process when the thread that started it ends. Ends the process at once where that thread's
/// process, `parent`, is gone already: the kernel tells nobody of an end before the request.
///
/// Makes system calls only, so it may run between fork and exec, and in the child of a program with threads.
pub fn die_with(parent: libc::pid_t) {
    // SAFETY: system calls that touch no memory.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

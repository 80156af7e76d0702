//! Forked children, which write to their copy of the arena.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_linux_mm::script::{ForkWriter, Touch};
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::lifetime::die_with_parent;
use libc::pid_t;

use super::arena::Arena;
use super::minflt;
use super::own_memory::OwnMemory;
use super::stale_entries;

/// A page of memory shared with the children.
pub(super) struct Forked {
    shared: NonNull<AtomicU64>,
}

impl Forked {
    pub(super) fn new() -> io::Result<Forked> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address chosen by the kernel.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES as usize, protection, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = NonNull::new(got.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Forked { shared })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is never unmapped, and the kernel zeroes it initially.
        unsafe { self.shared.as_ref() }
    }

    /// Starts a child, which writes and exits, or idles until it is killed.
    pub(super) fn start(
        &self,
        arena: Arena,
        own: &OwnMemory,
        writer: ForkWriter,
        [start, length, stride]: [u64; 3],
    ) -> io::Result<Running> {
        self.word().store(0, Ordering::Relaxed);
        let parent = std::process::id() as pid_t;
        // SAFETY: the other thread waits for its next job and holds no lock. libc's fork would run its handlers.
        let got = unsafe { libc::syscall(libc::SYS_fork) };
        match got {
            0 => {}
            pid if pid > 0 => return Ok(Running { pid: pid as pid_t }),
            _ => return Err(io::Error::last_os_error()),
        }
        die_with_parent(parent);
        if writer == ForkWriter::Parent {
            loop {
                // SAFETY: touches no memory.
                unsafe { libc::pause() };
            }
        }
        own.make_resident();
        self.word().store(u64::MAX, Ordering::Relaxed);
        stale_entries::flush();
        let before = minflt();
        arena.touch(Touch::WriteOne, start, length, stride);
        self.word().store(minflt() - before, Ordering::Relaxed);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }

    /// The faults charged to the last child that wrote.
    pub(super) fn faults(&self) -> u64 {
        self.word().load(Ordering::Relaxed)
    }
}

/// A child that has not been reaped yet.
pub(super) struct Running {
    pid: pid_t,
}

impl Running {
    /// Waits until the child exits, without reaping it.
    pub(super) fn wait(&self) -> io::Result<()> {
        // SAFETY: a zeroed `siginfo_t` is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: our own child; the kernel writes only to `info`.
        if unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &raw mut info, flags) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `waitid` filled in `info`, so the status field is valid.
        match (info.si_code, unsafe { info.si_status() }) {
            (libc::CLD_EXITED, 0) => Ok(()),
            (_, status) => Err(io::Error::other(format!("the forked child ended with {status}"))),
        }
    }

    /// Kills the child if it is still running, and reaps it.
    pub(super) fn end(self) {
        // SAFETY: our own child, which has not been reaped yet.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

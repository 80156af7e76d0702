//! Switches huge pages on again for recorded processes that outlive the recorder.
//!
//! Recorded processes have huge pages switched off (`PR_SET_THP_DISABLE`), and their children inherit that. Only the
//! process itself can switch them on again. So a second process, the guard, lives as long as the recorder. When the
//! recorder ends, even by SIGKILL, the guard lets every recorded process that is left make that call (ptrace).
//!
//! The guard is a fork of a process that may have other threads, so it makes system calls only: no other thread can
//! hold a lock that it needs.

use std::io::{self, PipeWriter, Write};
use std::os::fd::AsRawFd;

use hksim_memory_trace::ThpDisabled;
use libc::{c_int, c_long, c_void, pid_t};

use crate::injected_call;

/// Maximum number of processes that the guard knows.
const PROCESSES_MAX: usize = 4096;
/// Bytes of a file of /proc that are read: `status`, `children`.
const TEXT_BYTES: usize = 4096;

/// The recorder's end of the guard. Dropping it, or the end of this process, makes the guard act. The drop waits until no
/// copy of it is left, such as that of a process that has not executed its program yet.
///
/// The guard cannot do anything for processes that are traced: these end with the recorder.
pub struct ThpGuard {
    /// `None` when it is being dropped.
    tell: Option<PipeWriter>,
    guard: pid_t,
}

impl ThpGuard {
    /// Starts the guard. Processes get the setting `restored` back. `None` if no process can be created, or if huge pages
    /// are off for this process: the recorded ones would be without them anyway.
    pub fn start(restored: ThpDisabled) -> Option<Self> {
        if restored == ThpDisabled::All {
            return None;
        }
        let (told, tell) = io::pipe().ok()?;
        // SAFETY: plain numbers; the new process makes system calls only, and never returns from `guard`.
        unsafe {
            match libc::fork() {
                -1 => None,
                0 => guard(told.as_raw_fd(), restored),
                guard => Some(Self { tell: Some(tell), guard }),
            }
        }
    }

    /// A process is recorded from now on.
    pub fn begins(&mut self, pid: u32) {
        self.send(pid as pid_t);
    }

    /// A process has ended, or has chosen by itself to be without huge pages.
    pub fn ends(&mut self, pid: u32) {
        self.send(-(pid as pid_t));
    }

    fn send(&mut self, message: pid_t) {
        // Without its guard, the recording is still good.
        let _ = self.tell.as_mut().map(|tell| tell.write_all(&message.to_ne_bytes()));
    }
}

impl Drop for ThpGuard {
    fn drop(&mut self) {
        self.tell = None;
        // SAFETY: waits for this value's own child; no status is asked for.
        unsafe { libc::waitpid(self.guard, std::ptr::null_mut(), 0) };
    }
}

/// The guard's life.
fn guard(told: c_int, restored: ThpDisabled) -> ! {
    // SAFETY: system calls with plain numbers and with buffers of the given lengths. Descriptors that other values of
    // the recorder own are copies here, and no such value is used again.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::dup2(told, 0);
        libc::syscall(libc::SYS_close_range, 1 as c_long, c_long::from(c_int::MAX), 0 as c_long);
        let mut processes = Processes { pids: [0; PROCESSES_MAX], len: 0 };
        let mut message = [0u8; 4];
        while libc::read(0, message.as_mut_ptr().cast::<c_void>(), message.len()) == message.len() as isize {
            let pid = pid_t::from_ne_bytes(message);
            if pid > 0 { processes.add(pid) } else { processes.remove(-pid) }
        }
        processes.add_children();
        processes.pids[..processes.len].iter().filter(|&&pid| is_without_huge_pages(pid)).for_each(|&pid| {
            injected_call::prctl(pid, libc::PR_SET_THP_DISABLE, restored.arguments());
        });
        libc::_exit(0)
    }
}

/// The recorded processes.
struct Processes {
    pids: [pid_t; PROCESSES_MAX],
    len: usize,
}

impl Processes {
    fn add(&mut self, pid: pid_t) {
        if self.len < PROCESSES_MAX && !self.pids[..self.len].contains(&pid) {
            self.pids[self.len] = pid;
            self.len += 1;
        }
    }

    fn remove(&mut self, pid: pid_t) {
        if let Some(at) = self.pids[..self.len].iter().position(|&other| other == pid) {
            self.len -= 1;
            self.pids[at] = self.pids[self.len];
        }
    }

    /// Adds the children that the recorder had not told about yet, and theirs.
    fn add_children(&mut self) {
        let (mut at, mut text) = (0, [0; TEXT_BYTES]);
        while at < self.len {
            let children = read_proc(self.pids[at], Part::Children, &mut text);
            for word in children.split(|&byte| byte == b' ') {
                if let Some(child) = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()) {
                    self.add(child);
                }
            }
            at += 1;
        }
    }
}

/// Whether a process has huge pages switched off, and no filter that could end it for a system call.
fn is_without_huge_pages(pid: pid_t) -> bool {
    let mut text = [0; TEXT_BYTES];
    let status = read_proc(pid, Part::Status, &mut text);
    let has = |line: &[u8]| status.split(|&byte| byte == b'\n').any(|other| other == line);
    has(b"THP_enabled:\t0") && has(b"Seccomp:\t0")
}

/// A file of a process in /proc.
#[derive(Clone, Copy)]
enum Part {
    Status,
    Children,
}

/// Reads a file of /proc; nothing if it cannot be read.
fn read_proc(pid: pid_t, part: Part, text: &mut [u8; TEXT_BYTES]) -> &[u8] {
    let mut path = [0u8; 64];
    let mut rest = &mut path[..];
    let written = match part {
        Part::Status => write!(rest, "/proc/{pid}/status\0"),
        Part::Children => write!(rest, "/proc/{pid}/task/{pid}/children\0"),
    };
    if written.is_err() {
        return &[];
    }
    // SAFETY: the path ends with a zero byte; the kernel writes at most the length of `text`.
    let bytes = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
        if file < 0 {
            return &[];
        }
        let bytes = libc::read(file, text.as_mut_ptr().cast::<c_void>(), text.len());
        libc::close(file);
        bytes
    };
    &text[..usize::try_from(bytes).unwrap_or(0)]
}

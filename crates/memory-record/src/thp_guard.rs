//! Switches huge pages on again for recorded processes that outlive the recorder.
//!
//! Recorded processes have huge pages switched off (`PR_SET_THP_DISABLE`), and their children inherit that. Only the
//! process itself can switch them on again. So a second process, the guard, lives as long as the recorder. When the
//! recorder ends, even by SIGKILL, the guard lets every recorded process that is left make that call (ptrace).
//!
//! For processes that were running before, the guard also switches huge pages off: it lives on if the recorder is killed
//! in the middle of that.
//!
//! The guard is a fork of a process that may have other threads, so it makes system calls only: no other thread can
//! hold a lock that it needs.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use hksim_linux_probe::stopped_thread::StoppedThread;
use hksim_memory_trace::ThpDisabled;
use libc::{c_int, c_long, c_void, pid_t};

/// Maximum number of processes that the guard knows.
const PROCESSES_MAX: usize = 4096;
/// In a message: switch huge pages off for the process. Process ids are smaller.
const SWITCH_OFF: pid_t = 1 << 30;
/// How long the guard may take for that, in milliseconds.
const ANSWER_MS: c_int = 3000;
/// Bytes of a file of /proc that are read: `status`, `children`.
const TEXT_BYTES: usize = 4096;

/// The recorder's end of the guard. Dropping it, or the end of this process, makes the guard act. The drop waits until no
/// copy of it is left, such as that of a process that has not executed its program yet.
///
/// The guard cannot do anything for processes that are traced: these end with the recorder.
pub struct ThpGuard {
    /// `None` when it is being dropped.
    tell: Option<PipeWriter>,
    /// What a process had before the guard switched huge pages off for it.
    answer: PipeReader,
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
        let (answer, answers) = io::pipe().ok()?;
        // SAFETY: plain numbers; the new process makes system calls only, and never returns from `guard`.
        unsafe {
            match libc::fork() {
                -1 => None,
                0 => guard([told.as_raw_fd(), answers.as_raw_fd()], restored),
                guard => Some(Self { tell: Some(tell), answer, guard }),
            }
        }
    }

    /// A process is recorded from now on.
    pub fn begins(&mut self, pid: u32) {
        self.send(pid as pid_t);
    }

    /// Switches huge pages off for a running process. It gets its setting back when the guard acts. Returns the setting,
    /// which stays as it is if it has none anyway; `None` without effect if the process cannot be changed.
    pub fn switch_off(&mut self, pid: u32) -> Option<ThpDisabled> {
        self.send(pid as pid_t | SWITCH_OFF);
        let mut poll = libc::pollfd { fd: self.answer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel writes to the one value.
        let is_answered = unsafe { libc::poll(&raw mut poll, 1, ANSWER_MS) } > 0;
        let mut answer = [0; 4];
        let read = is_answered.then(|| self.answer.read_exact(&mut answer).ok()).flatten();
        read.map(|()| i32::from_ne_bytes(answer)).filter(|&number| number >= 0).map(ThpDisabled::of_number)
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
fn guard([told, answers]: [c_int; 2], restored: ThpDisabled) -> ! {
    // SAFETY: system calls with plain numbers and with buffers of the given lengths. Descriptors that other values of
    // the recorder own are copies here, and no such value is used again.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Neither descriptor is 0 or 1: the recorder has these, even if they are closed.
        let (told, answers) = (libc::fcntl(told, libc::F_DUPFD, 3), libc::fcntl(answers, libc::F_DUPFD, 3));
        libc::dup2(told, 0);
        libc::dup2(answers, 1);
        libc::syscall(libc::SYS_close_range, 2 as c_long, c_long::from(c_int::MAX), 0 as c_long);
        let mut processes = Processes { all: [(0, ThpDisabled::Off); PROCESSES_MAX], len: 0 };
        let mut message = [0u8; 4];
        while libc::read(0, message.as_mut_ptr().cast::<c_void>(), message.len()) == message.len() as isize {
            let pid = pid_t::from_ne_bytes(message);
            match pid {
                _ if pid < 0 => processes.remove(-pid),
                _ if pid & SWITCH_OFF != 0 => {
                    let number = switch_off(pid & !SWITCH_OFF, &mut processes).unwrap_or(-1).to_ne_bytes();
                    libc::write(1, number.as_ptr().cast::<c_void>(), number.len());
                }
                _ => processes.add(pid, restored),
            }
        }
        processes.add_children();
        let known = processes.all[..processes.len].iter().filter(|(pid, _)| is_without_huge_pages(*pid));
        known.for_each(|&(pid, restored)| {
            prctl(pid, libc::PR_SET_THP_DISABLE, restored.arguments());
        });
        libc::_exit(0)
    }
}

/// Switches huge pages off for a process that is not known yet. Returns what `prctl(PR_GET_THP_DISABLE)` returned before.
fn switch_off(pid: pid_t, processes: &mut Processes) -> Option<i32> {
    if !has_line(pid, b"Seccomp:\t0") {
        return None;
    }
    let number = prctl(pid, libc::PR_GET_THP_DISABLE, [0, 0])?;
    let before = ThpDisabled::of_number(number);
    if before == ThpDisabled::All {
        return Some(number);
    }
    // Known first: it is restored even if the answer of the call is lost.
    processes.add(pid, before);
    prctl(pid, libc::PR_SET_THP_DISABLE, ThpDisabled::All.arguments()).map(|_| number)
}

/// Lets a process call `prctl(option, second, third, 0, 0)`. Returns the result; `None` if the call fails, or without
/// effect if the process cannot be traced. Waits until it stops, however long that takes.
fn prctl(pid: pid_t, option: c_int, [second, third]: [u32; 2]) -> Option<i32> {
    let mut stopped = StoppedThread::stop(pid as u32, Duration::MAX).ok()?;
    let arguments = [option as u64, second.into(), third.into(), 0, 0, 0];
    stopped.system_call(libc::SYS_prctl, arguments).ok().map(|result| result as i32)
}

/// The recorded processes, each with the setting that it gets back.
struct Processes {
    all: [(pid_t, ThpDisabled); PROCESSES_MAX],
    len: usize,
}

impl Processes {
    fn add(&mut self, pid: pid_t, restored: ThpDisabled) {
        if self.len < PROCESSES_MAX && !self.all[..self.len].iter().any(|&(other, _)| other == pid) {
            self.all[self.len] = (pid, restored);
            self.len += 1;
        }
    }

    fn remove(&mut self, pid: pid_t) {
        if let Some(at) = self.all[..self.len].iter().position(|&(other, _)| other == pid) {
            self.len -= 1;
            self.all[at] = self.all[self.len];
        }
    }

    /// Adds the children that the recorder had not told about yet, and theirs.
    fn add_children(&mut self) {
        let (mut at, mut text) = (0, [0; TEXT_BYTES]);
        while at < self.len {
            let (pid, restored) = self.all[at];
            let children = read_proc(pid, Part::Children, &mut text);
            for word in children.split(|&byte| byte == b' ') {
                if let Some(child) = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()) {
                    self.add(child, restored);
                }
            }
            at += 1;
        }
    }
}

/// Whether a process has huge pages switched off, and no filter that could end it for a system call.
fn is_without_huge_pages(pid: pid_t) -> bool {
    has_line(pid, b"THP_enabled:\t0") && has_line(pid, b"Seccomp:\t0")
}

/// Whether the status of a process has this line.
fn has_line(pid: pid_t, line: &[u8]) -> bool {
    let mut text = [0; TEXT_BYTES];
    read_proc(pid, Part::Status, &mut text).split(|&byte| byte == b'\n').any(|other| other == line)
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

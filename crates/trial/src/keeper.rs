//! The keeper: the process between hksim and a program.
//!
//! It starts the program without a terminal, adopts the orphans below it, waits for all, and reports what the kernel
//! counted for them. So nothing of the program is left out, and nothing outlives a run: not even if hksim is killed.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::job::{Ended, Job, Message, receive, send};
use crate::tree;

/// First argument of a keeper.
pub const KEEPER_ARGUMENT: &str = "__hksim-trial-keeper";

/// Time that processes have which outlive the program, before they are asked to end.
const LINGER: Duration = Duration::from_secs(2);
/// Time that processes have after they were asked to end, before they are killed. Below the patience of the supervisor.
const GRACE: Duration = Duration::from_secs(12);
/// Interval between looks at deadlines.
const INTERVAL: Duration = Duration::from_millis(100);

/// Signals that a keeper receives: the ends of its children, and those that stop the program.
const SIGNALS: [libc::c_int; 7] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// The `main` of a process started with [`KEEPER_ARGUMENT`]. Its standard input is a socket, on which it gets the job and
/// answers; the program has its standard output and error.
pub fn keeper_main() -> ExitCode {
    // SAFETY: the descriptor is open and belongs to this process, which uses it nowhere else.
    let socket = UnixStream::from(unsafe { OwnedFd::from_raw_fd(libc::STDIN_FILENO) });
    match serve(socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hksim: cannot keep a program: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: UnixStream) -> io::Result<()> {
    let mut answers = socket.try_clone()?;
    let Some(job) = receive::<Job>(&mut BufReader::new(socket))? else { return Ok(()) };
    let unblocked = block_signals()?;
    adopt_orphans(job.huge_pages_off)?;
    let begin = Instant::now();
    let program = match start(&job, unblocked) {
        Ok(pid) => pid,
        Err(why) => return send(&mut answers, &Message::NotStarted(why.to_string())),
    };
    send(&mut answers, &Message::Started)?;
    let kept = Kept { program, begin, is_server: job.is_server, end: None, stop: None, stopped: 0, was_killed: false };
    send(&mut answers, &Message::Ended(kept.ended()?))
}

/// The program and its descendants while one of them lives.
struct Kept {
    program: libc::pid_t,
    begin: Instant,
    is_server: bool,
    /// The program's wait status and its end.
    end: Option<(i32, Instant)>,
    /// When processes were asked to end.
    stop: Option<Instant>,
    /// Processes that outlived the program and were asked to end.
    stopped: u32,
    was_killed: bool,
}

impl Kept {
    fn ended(mut self) -> io::Result<Ended> {
        while self.reap()? {
            match next_signal() {
                None | Some(libc::SIGCHLD) => {}
                Some(signal) => self.pass_on(signal),
            }
            self.keep_deadlines();
        }
        let (status, end) = self.end.ok_or(io::ErrorKind::NotFound)?;
        let usage = usage_of_children();
        let time_ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Ok(Ended {
            status,
            wall_ns: (end - self.begin).as_nanos() as u64,
            cpu_ns: time_ns(usage.ru_utime) + time_ns(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            rss_bytes_peak: usage.ru_maxrss as u64 * 1024,
            processes_stopped: self.stopped,
            was_killed: self.was_killed,
        })
    }

    /// Waits for all that have ended. Returns whether others have not.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            let mut status = 0;
            // SAFETY: a valid place for the status.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
                0 => return Ok(true),
                pid if pid == self.program => self.end = Some((status, Instant::now())),
                pid if pid > 0 => {}
                _ => match io::Error::last_os_error() {
                    why if why.raw_os_error() == Some(libc::ECHILD) => return Ok(false),
                    why => return Err(why),
                },
            }
        }
    }

    /// Sends a signal to the program. If only descendants are left, they get it.
    fn pass_on(&mut self, signal: libc::c_int) {
        match self.end {
            None => kill(self.program, signal),
            Some(_) => _ = self.signal_descendants(signal),
        }
        self.stop.get_or_insert_with(Instant::now);
    }

    fn keep_deadlines(&mut self) {
        let now = Instant::now();
        let has_lingered = self.end.is_some_and(|(_, end)| now > end + LINGER);
        match self.stop {
            Some(stop) if now > stop + GRACE => {
                self.was_killed = true;
                self.signal_descendants(libc::SIGKILL);
            }
            // The program has been stopped, and what it started goes on.
            Some(stop) if has_lingered && now > stop + LINGER && self.stopped == 0 => {
                self.stopped = self.signal_descendants(libc::SIGTERM);
            }
            None if has_lingered && !self.is_server => {
                self.stopped = self.signal_descendants(libc::SIGTERM);
                self.stop = Some(now);
            }
            _ => {}
        }
    }

    /// Sends a signal to all descendants. Returns how many there are.
    fn signal_descendants(&self, signal: libc::c_int) -> u32 {
        let descendants = tree::descendants(std::process::id());
        descendants.iter().for_each(|&pid| kill(pid as libc::pid_t, signal));
        descendants.len() as u32
    }
}

/// Sends a signal to a process that this one has not waited for, or that was found below it just now.
fn kill(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Starts the program with this signal mask.
fn start(job: &Job, mask: libc::sigset_t) -> io::Result<libc::pid_t> {
    let (program, arguments) = job.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let input = job.input.as_ref().map(File::open).transpose()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input.map_or_else(Stdio::null, Stdio::from));
    for (name, value) in &job.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // SAFETY: a system call that is async-signal-safe. Having it also means that the program is started by fork: with
    // vfork it would share this process's memory, and the kernel would count that as the program's peak.
    unsafe {
        command.pre_exec(move || match libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    Ok(command.spawn()?.id() as libc::pid_t)
}

/// Blocks the signals that this process waits for. Returns the mask before.
fn block_signals() -> io::Result<libc::sigset_t> {
    let signals = signal_set();
    // SAFETY: a mask of zeros is valid, and the call writes it.
    let mut before = unsafe { std::mem::zeroed() };
    // SAFETY: two valid sets.
    match unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal_set() -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, and the signals are valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        SIGNALS.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        set
    }
}

/// The next signal, or `None` after [`INTERVAL`].
fn next_signal() -> Option<libc::c_int> {
    let set = signal_set();
    let time = libc::timespec { tv_sec: 0, tv_nsec: INTERVAL.subsec_nanos().into() };
    // SAFETY: a valid set and time; no information is asked for.
    let signal = unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time) };
    (signal > 0).then_some(signal)
}

/// Makes descendants whose parents end children of this process, and optionally switches huge pages off for all.
fn adopt_orphans(huge_pages_off: bool) -> io::Result<()> {
    let set = |option, value: libc::c_ulong| {
        // SAFETY: these options take a number.
        match unsafe { libc::prctl(option, value, 0 as libc::c_ulong, 0 as libc::c_ulong, 0 as libc::c_ulong) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    set(libc::PR_SET_CHILD_SUBREAPER, 1)?;
    if huge_pages_off { set(libc::PR_SET_THP_DISABLE, 1) } else { Ok(()) }
}

/// What the kernel counted for all processes below this one that have been waited for.
fn usage_of_children() -> libc::rusage {
    // SAFETY: zeros are valid, and the call writes the struct.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    }
}

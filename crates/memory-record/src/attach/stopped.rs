//! All threads of a process, stopped by ptrace. Nothing of the process is changed, and the kernel lets it run on if this
//! process ends.
//!
//! What a program can notice of such a stop: calls that the kernel does not restart by itself, such as `epoll_wait` and
//! `sigtimedwait`, return EINTR, as after SIGSTOP and SIGCONT.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, c_long, pid_t};

use super::target::Target;
use crate::error::AttachError;
use crate::ptrace::EVENT_STOP;

/// How long a thread may take to stop. It stops at once unless the kernel is busy with it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at a thread that has not stopped yet.
const PAUSE: Duration = Duration::from_micros(20);

/// A stopped process. Dropping this value lets it run on. Only the thread that stopped it may drop it.
#[derive(Debug)]
pub struct StoppedProcess {
    pid: u32,
    /// Each thread with the signal that it was about to get; 0 for none.
    threads: BTreeMap<pid_t, c_int>,
    ids: Vec<pid_t>,
}

impl StoppedProcess {
    /// Stops all threads.
    ///
    /// # Errors
    /// The kernel does not permit it, or a thread does not stop.
    pub fn stop(target: &Target) -> Result<Self, AttachError> {
        let mut stopped = Self { pid: target.pid, threads: BTreeMap::new(), ids: Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        // A running thread can create others. When all known ones are stopped and none is new, there are no others.
        loop {
            let new: Vec<pid_t> =
                stopped.listed().into_iter().filter(|tid| !stopped.threads.contains_key(tid)).collect();
            let seized = new.iter().map(|&tid| stopped.seize(target, tid)).collect::<Result<Vec<bool>, _>>()?;
            if !seized.contains(&true) {
                break;
            }
            for tid in new.into_iter().zip(seized).filter_map(|(tid, is_seized)| is_seized.then_some(tid)) {
                stopped.wait(target, tid, deadline)?;
            }
        }
        stopped.ids = stopped.threads.keys().copied().collect();
        // The first thread gives the process its id, and is the one that reads of /proc/PID see.
        stopped.ids.sort_by_key(|&tid| (tid != target.pid as pid_t, tid));
        if stopped.ids.is_empty() { Err(target.ended()) } else { Ok(stopped) }
    }

    /// The threads, the first one first. Not empty.
    pub fn threads(&self) -> &[pid_t] {
        &self.ids
    }

    /// The process's children.
    pub fn children(&self) -> Vec<u32> {
        let text =
            |tid: &pid_t| fs::read_to_string(format!("/proc/{}/task/{tid}/children", self.pid)).unwrap_or_default();
        let texts: Vec<String> = self.ids.iter().map(text).collect();
        texts.iter().flat_map(|text| text.split_ascii_whitespace()).filter_map(|word| word.parse().ok()).collect()
    }

    fn listed(&self) -> Vec<pid_t> {
        let entries = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Begins to trace a thread, and asks it to stop. False if it has ended.
    fn seize(&mut self, target: &Target, tid: pid_t) -> Result<bool, AttachError> {
        const NONE: c_long = 0;
        // SAFETY: numbers only.
        if unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, NONE, NONE) } != 0 {
            let why = io::Error::last_os_error();
            return if has_ended(self.pid, tid) { Ok(false) } else { Err(target.refused(why)) };
        }
        self.threads.insert(tid, 0);
        // SAFETY: numbers only; the thread is traced by this one.
        unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, NONE, NONE) };
        Ok(true)
    }

    fn wait(&mut self, target: &Target, tid: pid_t, deadline: Instant) -> Result<(), AttachError> {
        loop {
            let mut status: c_int = 0;
            // SAFETY: the kernel writes to the value.
            match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                0 if Instant::now() >= deadline => return Err(AttachError::DoesNotStop { pid: self.pid, tid }),
                0 => thread::sleep(PAUSE),
                stopped if stopped == tid && libc::WIFSTOPPED(status) => {
                    let is_signal = status >> 16 == 0;
                    self.threads.insert(tid, if is_signal { libc::WSTOPSIG(status) } else { 0 });
                    debug_assert!(is_signal || status >> 16 == EVENT_STOP);
                    return Ok(());
                }
                _ if has_ended(self.pid, tid) || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                    self.threads.remove(&tid);
                    return if tid == target.pid as pid_t && self.threads.is_empty() {
                        Err(target.ended())
                    } else {
                        Ok(())
                    };
                }
                _ => {}
            }
        }
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        for (&tid, &signal) in &self.threads {
            // SAFETY: numbers only. A thread that was killed meanwhile cannot be detached; it ends.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, 0 as c_long, c_long::from(signal)) };
        }
    }
}

/// Whether a thread is gone, or has ended and waits for the others (the first thread).
fn has_ended(pid: u32, tid: pid_t) -> bool {
    // A thread's name need not be UTF-8.
    let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().next());
    state.is_none_or(|state| matches!(state, "Z" | "X"))
}

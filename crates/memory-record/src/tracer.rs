//! The tracer: stops the program and its descendants at memory calls (`filter`), and makes the records that tracepoints
//! make in the other way of recording.
//!
//! What the program can notice: it cannot be traced by another process (`ptrace` fails with EPERM), `/proc/PID/status`
//! names the tracer, and `filter` applies. It ends if the recorder ends. A child made with `CLONE_UNTRACED`, which only
//! debuggers use, is not traced, and its memory calls fail with ENOSYS.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use hksim_linux_probe::status::Status;
use hksim_linux_probe::{PAGE_BYTES, processor};
use libc::{c_int, pid_t};

use crate::call_log::CallLog;
use crate::calls;
use crate::error::MemoryRecordError;
use crate::filter;
use crate::launch::Ended;
use crate::ptrace::{self, CallState, EVENT_STOP, Resume};
use crate::record::What;
use crate::snapshot::{self, Peak, Snapshots, SnapshotsOf};

/// `CLONE_VM`, `CLONE_VFORK`, `CLONE_THREAD` (`include/uapi/linux/sched.h`).
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x10000;
/// Stop signal of the exit of a call, with `PTRACE_O_TRACESYSGOOD`.
const CALL_EXIT: c_int = libc::SIGTRAP | 0x80;

/// The processes that this process traces. It must stay until they end, since they end with it: dropping the last
/// copy of this value waits.
#[derive(Clone, Debug)]
pub struct Traced(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    thread: Option<JoinHandle<()>>,
    log: Arc<CallLog>,
}

impl Traced {
    /// Whether any process still runs.
    pub fn is_running(&self) -> bool {
        self.0.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.log.close();
        if let Some(thread) = self.thread.take() {
            // A tracer that failed has no processes left.
            let _ = thread.join();
        }
    }
}

/// What the tracer reads from the processes beside their calls.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Whose memory at the exit.
    pub snapshots: SnapshotsOf,
    /// Registers and stack at calls that make mappings or ask for huge pages.
    pub stacks: bool,
}

/// Begins to trace the process `pid`, which has not installed its filter yet. Returns where the tracer reports the end
/// of that process.
///
/// # Errors
/// The kernel does not permit it.
pub fn start(pid: pid_t, log: &Arc<CallLog>, reads: Reads) -> Result<(Receiver<Ended>, Traced), MemoryRecordError> {
    let forbidden = |why| MemoryRecordError::TracingForbidden { why };
    filter::is_available().map_err(forbidden)?;
    let (report, ended) = mpsc::channel();
    let (seized, has_seized) = mpsc::channel();
    let mut tracer = Tracer::new(pid as u32, Arc::clone(log), reads, report);
    // Only the thread that traces a process can wait for its stops.
    let thread = thread::spawn(move || {
        let result = ptrace::seize(pid);
        let is_seized = result.is_ok();
        let _ = seized.send(result);
        if is_seized {
            tracer.run();
        }
    });
    let thread = Some(thread);
    let traced = Traced(Arc::new(Handle { thread, log: Arc::clone(log) }));
    has_seized.recv().unwrap_or_else(|_| Err(io::Error::other("the tracer failed"))).map_err(forbidden)?;
    Ok((ended, traced))
}

/// A traced thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    /// The selected call that it executes.
    call: Option<i64>,
}

/// A stop or an end that the kernel reports.
struct Report {
    tid: u32,
    status: c_int,
    usage: libc::rusage,
}

struct Tracer {
    root: u32,
    /// The started process has executed its program.
    has_executed: bool,
    threads: HashMap<u32, Thread>,
    /// New threads and processes that stopped before their creator reported them, with the creator's process. They wait
    /// so that their records come after the creator's.
    early: HashMap<u32, u32>,
    log: Arc<CallLog>,
    reads: Reads,
    snapshots: Snapshots,
    /// The highest anonymous bytes of each process, read right before the calls that give memory up.
    peaks: HashMap<u32, u64>,
    report: Sender<Ended>,
}

impl Tracer {
    fn new(root: u32, log: Arc<CallLog>, reads: Reads, report: Sender<Ended>) -> Self {
        let threads = HashMap::from([(root, Thread { pid: root, call: None })]);
        let (early, peaks, snapshots) = (HashMap::new(), HashMap::new(), Snapshots::new());
        Self { root, has_executed: false, threads, early, log, reads, snapshots, peaks, report }
    }

    /// Handles reports until no traced process is left.
    fn run(&mut self) {
        while let Some(Report { tid, status, usage }) = self.next_report() {
            if libc::WIFSTOPPED(status) {
                // A thread that is killed meanwhile cannot be resumed; its end is reported.
                let _ = self.stopped(tid, status);
            } else {
                self.ended(tid, status, &usage);
            }
        }
    }

    /// The next report; `None` if no traced process is left.
    fn next_report(&self) -> Option<Report> {
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // If the program cannot be executed, the process is reaped by the thread that created it.
        if !self.has_executed && self.has_ended_early() {
            return None;
        }
        let mut status: c_int = 0;
        // SAFETY: plain numbers, valid when zeroed.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: the kernel writes to the two values.
            let tid = unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut usage) };
            if tid > 0 {
                return Some(Report { tid: tid as u32, status, usage });
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return None;
            }
        }
    }

    /// Waits for a report and leaves it to be taken. Whether the process has ended instead.
    fn has_ended_early(&self) -> bool {
        let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
        loop {
            // SAFETY: plain data, valid when zeroed.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel writes to the value.
            if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) } == 0 {
                return matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return true;
            }
        }
    }

    fn stopped(&mut self, tid: u32, status: c_int) -> io::Result<()> {
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        if !self.threads.contains_key(&tid) {
            return self.new_thread(tid);
        }
        let mut delivered = 0;
        match event {
            libc::PTRACE_EVENT_SECCOMP => self.call_selected(tid)?,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.created(tid, event)?
            }
            libc::PTRACE_EVENT_EXEC => {
                // The threads that it ended may have looked like the end of the process.
                self.snapshots.remove(&tid);
                self.peaks.remove(&tid);
                self.executed(tid)?;
            }
            libc::PTRACE_EVENT_EXIT => {
                if let Some(&Thread { pid, .. }) = self.threads.get(&tid) {
                    self.read_peak(pid, tid);
                }
                snapshot::take_at_exit(tid as pid_t, self.reads.snapshots, &mut self.snapshots);
            }
            EVENT_STOP if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {
                return ptrace::resume(tid, Resume::Listening, 0);
            }
            0 if signal == CALL_EXIT => self.call_complete(tid)?,
            0 => delivered = signal,
            _ => {}
        }
        let is_in_call = self.threads.get(&tid).is_some_and(|thread| thread.call.is_some());
        ptrace::resume(tid, if is_in_call { Resume::ToCallExit } else { Resume::Freely }, delivered)
    }

    fn call_selected(&mut self, tid: u32) -> io::Result<()> {
        let Some(CallState::Selected { number, arguments }) = ptrace::call_state(tid)? else { return Ok(()) };
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        thread.call = Some(number);
        let pid = thread.pid;
        if self.reads.snapshots != SnapshotsOf::Nothing && calls::gives_memory_up(number, &arguments) {
            self.read_peak(pid, tid);
        }
        let wants_dump = self.reads.stacks && calls::wants_site(number, &arguments);
        // Without a dump, the call has no call site.
        let dump = wants_dump.then(|| ptrace::stack_dump(tid).ok()).flatten().map(Box::new);
        self.log.push(pid, tid, What::Enter { number, arguments: Box::new(arguments), dump });
        Ok(())
    }

    fn read_peak(&mut self, pid: u32, tid: u32) {
        let Some(bytes) = snapshot::anonymous_bytes(tid as pid_t) else { return };
        let peak = self.peaks.entry(pid).or_default();
        *peak = bytes.max(*peak);
    }

    fn call_complete(&mut self, tid: u32) -> io::Result<()> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(number) = thread.call.take() else { return Ok(()) };
        let pid = thread.pid;
        if let Some(CallState::Complete { result }) = ptrace::call_state(tid)? {
            self.log.push(pid, tid, What::Exit { number, result });
        }
        Ok(())
    }

    /// A thread has created another thread or a process.
    fn created(&mut self, tid: u32, event: c_int) -> io::Result<()> {
        let child = ptrace::event_message(tid)?;
        let Some(&Thread { pid, .. }) = self.threads.get(&tid) else { return Ok(()) };
        let clone_flags = clone_flags(tid).unwrap_or_else(|| likely_flags(pid, child, event));
        let child_pid = if clone_flags & CLONE_THREAD != 0 { pid } else { child };
        self.threads.insert(child, Thread { pid: child_pid, call: None });
        self.log.push(pid, tid, What::NewTask { clone_flags });
        match self.early.remove(&child) {
            Some(_) => ptrace::resume(child, Resume::Freely, 0).or(Ok(())),
            None => Ok(()),
        }
    }

    /// The first stop of a thread whose creator has not reported it yet.
    fn new_thread(&mut self, tid: u32) -> io::Result<()> {
        let parent = status_number(tid, "PPid");
        let is_known = |pid: u32| self.threads.values().any(|thread| thread.pid == pid);
        let group = status_number(tid, "Tgid");
        let creator = if group == Some(tid) { parent } else { group };
        match creator.filter(|&pid| is_known(pid)) {
            Some(creator) => {
                self.early.insert(tid, creator);
                Ok(())
            }
            None => self.release(tid),
        }
    }

    /// Lets a thread run that no creator will report.
    fn release(&mut self, tid: u32) -> io::Result<()> {
        let pid = status_number(tid, "Tgid").unwrap_or(tid);
        self.threads.insert(tid, Thread { pid, call: None });
        ptrace::resume(tid, Resume::Freely, 0)
    }

    /// A process executes a program: the calling thread has taken over the process's id, the other threads are gone.
    fn executed(&mut self, tid: u32) -> io::Result<()> {
        let former = ptrace::event_message(tid)?;
        if let Some(thread) = self.threads.remove(&former) {
            self.threads.insert(tid, thread);
        }
        if tid == self.root && !self.has_executed {
            self.has_executed = true;
            if self.reads.snapshots != SnapshotsOf::Nothing {
                ptrace::stop_at_exit(tid)?;
            }
        }
        Ok(())
    }

    fn ended(&mut self, tid: u32, status: c_int, usage: &libc::rusage) {
        if tid == self.root {
            let mut snapshots = std::mem::take(&mut self.snapshots);
            for (pid, snapshot) in &mut snapshots {
                let peak = self.peaks.get(pid).map(|&bytes| Peak { bytes, error_bytes: counter_error_bytes() });
                snapshot.anonymous.peak = peak;
            }
            let ended = Ended::new(ExitStatus::from_raw(status), usage, snapshots);
            // Nobody waits for it after a recording that ended first.
            let _ = self.report.send(ended);
        }
        self.early.remove(&tid);
        let Some(Thread { pid, .. }) = self.threads.remove(&tid) else { return };
        if self.early.is_empty() || self.threads.values().any(|thread| thread.pid == pid) {
            return;
        }
        // A process that was killed while it created another one does not report it.
        for (orphan, _) in self.early.extract_if(|_, creator| *creator == pid).collect::<Vec<_>>() {
            let _ = self.release(orphan);
        }
    }
}

/// How far `RssAnon` may be from the truth: from Linux 6.2 to 6.15, each processor collects up to 32 pages before it adds them
/// to the counter that /proc shows (`percpu_counter_batch`).
fn counter_error_bytes() -> u64 {
    const BATCH_PAGES: u64 = 32;
    processor::online().len() as u64 * BATCH_PAGES * PAGE_BYTES
}

/// The `CLONE_*` flags of the call in which a thread is stopped; `None` for a call that is not understood.
fn clone_flags(tid: u32) -> Option<u64> {
    let (number, first) = ptrace::current_call(tid)?;
    match number {
        libc::SYS_clone => Some(first),
        // The flags are the first field of `struct clone_args`.
        libc::SYS_clone3 => ptrace::read_word(tid, first).ok(),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => Some(0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => Some(CLONE_VM | CLONE_VFORK),
        _ => None,
    }
}

/// The flags that follow from the kind of event: for 32-bit programs, whose calls have other numbers.
fn likely_flags(pid: u32, child: u32, event: c_int) -> u64 {
    match event {
        libc::PTRACE_EVENT_VFORK => CLONE_VM | CLONE_VFORK,
        _ if status_number(child, "Tgid") == Some(pid) => CLONE_VM | CLONE_THREAD,
        _ => 0,
    }
}

/// A number of a thread's status: `Tgid`, `PPid`.
fn status_number(tid: u32, field: &str) -> Option<u32> {
    Status::of(tid).ok()?.number(field)
}

//! The processes and programs that a recorded program starts, as the kernel reports them: to find those without a log.
//!
//! A program may be executed without the recorder: it is static or set-user-ID, or its environment was cleared. A child
//! may outlive the program and the recording. Neither leaves a trace, so only the kernel can name them. Its events
//! (`perf_event_open`) cost time only at forks, execs and ends. With root's rights there is one event for each processor.
//! Other users' events must be inherited by each thread, which costs about 2.5 us for each processor.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hksim_linux_probe::perf::{
    self, FLAG_COMM, FLAG_COMM_EXEC, FLAG_EXCLUDE_HV, FLAG_EXCLUDE_KERNEL, FLAG_INHERIT, FLAG_SAMPLE_ID_ALL, FLAG_TASK,
    FLAG_USE_CLOCKID, Request, SAMPLE_TIME, SOFTWARE_DUMMY, TYPE_SOFTWARE,
};
use hksim_linux_probe::processor;
use hksim_linux_probe::ring::{HEADER_BYTES, MISC_COMM_EXEC, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_LOST, Ring};

use crate::clock::ClockPair;
use crate::run;

/// Data bytes of a ring: about 500 forks, execs and ends of descendants, or 4000 of the machine, on one processor between
/// two reads. Other users may lock little memory, and page faults need most of it.
const RING_BYTES: usize = 32 << 10;
const RING_BYTES_OF_MACHINE: usize = 256 << 10;
/// Interval between two reads of the rings.
const INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of processors on which threads inherit events.
const PROCESSORS_INHERITED_MAX: usize = 8;
/// Minimum age of a record when it is read. By then all rings contain the records before it.
const SETTLED_NS: u64 = 1_000_000;

/// A program that a process executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// When the process ended, as `time_ns`; `None` if it has not, or executed another program.
    pub ended_ns: Option<u64>,
    /// Process id.
    pub pid: u32,
    /// The child of the recorder that this process descends from.
    pub root: u32,
    /// The first 15 bytes of the program's file name.
    pub name: String,
}

#[cfg(test)]
impl Execution {
    /// An execution by a process that has not ended.
    pub fn new(time_ns: u64, pid: u32, name: &str) -> Self {
        Self { time_ns, ended_ns: None, pid, root: 1, name: name.to_string() }
    }
}

/// What was started until now.
#[derive(Debug, Default)]
pub struct Started {
    /// Executed programs, in order of time.
    pub executions: Vec<Execution>,
    /// Processes that have not ended, each with the recorder's child that it descends from.
    pub running: HashMap<u32, u32>,
    /// When signals came from a terminal or another process, which may have sent them to the program's children too;
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub signals_ns: Vec<u64>,
    /// Whether records were lost.
    pub is_incomplete: bool,
}

/// Collects the kernel's records in a thread.
pub struct ProcessTree {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Started>,
}

impl ProcessTree {
    /// Starts collecting for all processes that the calling thread starts from now on.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn begin() -> io::Result<Self> {
        let opened = open_all()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut history = History { rings: opened, ..History::default() };
            while !stopped.load(Ordering::Acquire) {
                thread::sleep(INTERVAL);
                history.look(ClockPair::now().ns.saturating_sub(SETTLED_NS));
            }
            history.look(u64::MAX);
            history.into_started()
        };
        Ok(Self { stop, thread: thread::Builder::new().name("processes".into()).spawn(run)? })
    }

    /// Stops, and returns what the recorder's child `root` has started.
    pub fn end(self, root: u32) -> Started {
        self.stop.store(true, Ordering::Release);
        let started = self.thread.join().unwrap_or(Started { is_incomplete: true, ..Started::default() });
        Started { signals_ns: run::signals_ns(), ..started.of(root) }
    }
}

/// The records of all processors.
fn open_all() -> io::Result<Vec<(OwnedFd, Ring)>> {
    let processors = processor::online();
    let open =
        |of: Observed| processors.iter().map(|&processor| open_on(processor, of)).collect::<io::Result<Vec<_>>>();
    open(Observed::All).or_else(|_| {
        if processors.len() > PROCESSORS_INHERITED_MAX {
            let why = "on this many processors it would slow down the start of threads; record as root";
            return Err(io::Error::other(why));
        }
        open(Observed::Descendants)
    })
}

/// Whose records are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observed {
    /// All processes of the machine; permitted to root.
    All,
    /// Those that the calling thread starts from now on.
    Descendants,
}

/// The records of one processor.
fn open_on(processor: i32, of: Observed) -> io::Result<(OwnedFd, Ring)> {
    let flags = FLAG_TASK | FLAG_COMM | FLAG_COMM_EXEC | FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCKID;
    let (process, inherit, ring_bytes) = match of {
        Observed::All => (-1, 0, RING_BYTES_OF_MACHINE),
        Observed::Descendants => (0, FLAG_INHERIT, RING_BYTES),
    };
    let request = Request {
        kind: TYPE_SOFTWARE,
        config: SOFTWARE_DUMMY,
        sample_type: SAMPLE_TIME,
        flags: flags | inherit | FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV,
        clockid: libc::CLOCK_MONOTONIC,
        ..Request::default()
    };
    let event = perf::open_of(process, &request, Some(processor))?;
    let ring = Ring::map(&event, ring_bytes)?;
    Ok((event, ring))
}

/// A record, without its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// A new thread of process `pid`, made by a thread of process `parent`.
    Fork { pid: u32, parent: u32 },
    /// Process `pid` executes a program.
    Exec { pid: u32, name: String },
    /// A thread of process `pid` ends.
    Exit { pid: u32 },
}

/// A running process.
struct Process {
    /// The child of the recorder that it descends from.
    root: u32,
    threads: u32,
    /// The number of its last execution.
    execution: Option<usize>,
}

/// The records so far.
#[derive(Default)]
struct History {
    rings: Vec<(OwnedFd, Ring)>,
    /// Records that are too new to be in order.
    waiting: Vec<(u64, Change)>,
    /// Each running descendant of the recorder.
    processes: HashMap<u32, Process>,
    started: Started,
}

impl History {
    /// Reads the rings, and applies the records before `until_ns` in order.
    fn look(&mut self, until_ns: u64) {
        let mut bytes = Vec::new();
        for (_, ring) in &self.rings {
            let (head, mut tail) = (ring.head(), ring.tail());
            while tail < head {
                let header = ring.header(tail);
                bytes.resize(header.bytes as usize, 0);
                ring.copy(tail, &mut bytes);
                self.started.is_incomplete |= header.kind == RECORD_LOST;
                self.waiting.extend(read(header.kind, header.misc, &bytes));
                tail += header.bytes;
            }
            ring.release(tail);
        }
        self.waiting.sort();
        let due = self.waiting.partition_point(|(time_ns, _)| *time_ns < until_ns);
        let due: Vec<(u64, Change)> = self.waiting.drain(..due).collect();
        due.into_iter().for_each(|(time_ns, change)| self.apply(time_ns, change));
    }

    fn apply(&mut self, time_ns: u64, change: Change) {
        match change {
            Change::Fork { pid, parent } if pid == parent => {
                self.processes.entry(pid).and_modify(|process| process.threads += 1);
            }
            Change::Fork { pid, parent } => {
                let root = match self.processes.get(&parent) {
                    _ if parent == process::id() => pid,
                    Some(parent) => parent.root,
                    None => return,
                };
                self.processes.insert(pid, Process { root, threads: 1, execution: None });
            }
            Change::Exec { pid, name } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.execution = Some(self.started.executions.len());
                    let root = process.root;
                    self.started.executions.push(Execution { time_ns, ended_ns: None, pid, root, name });
                }
            }
            Change::Exit { pid } => {
                let Entry::Occupied(mut process) = self.processes.entry(pid) else { return };
                process.get_mut().threads -= 1;
                if process.get().threads == 0 {
                    let execution = process.remove().execution;
                    if let Some(execution) = execution.and_then(|number| self.started.executions.get_mut(number)) {
                        execution.ended_ns = Some(time_ns);
                    }
                }
            }
        }
    }

    fn into_started(self) -> Started {
        let running = self.processes.into_iter().map(|(pid, process)| (pid, process.root)).collect();
        Started { running, ..self.started }
    }
}

/// The record's time and what it says; `None` if it says nothing about processes.
fn read(kind: u32, misc: u16, record: &[u8]) -> Option<(u64, Change)> {
    let word = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
    let time_ns = long(record.len().checked_sub(8)?)?;
    let pid = word(HEADER_BYTES)?;
    let change = match kind {
        RECORD_FORK => Change::Fork { pid, parent: word(HEADER_BYTES + 4)? },
        RECORD_EXIT => Change::Exit { pid },
        RECORD_COMM if misc & MISC_COMM_EXEC != 0 => {
            let name = record.get(HEADER_BYTES + 8..record.len() - 8)?.split(|&byte| byte == 0).next()?;
            Change::Exec { pid, name: String::from_utf8_lossy(name).into_owned() }
        }
        _ => return None,
    };
    Some((time_ns, change))
}

impl Started {
    /// What the recorder's child `root` has started. Another recording of the same process may have started others.
    fn of(mut self, root: u32) -> Self {
        self.executions.retain(|execution| execution.root == root);
        self.running.retain(|_, &mut of| of == root);
        self
    }

    /// The executed programs without a log. `logs` has process id and start of each log that began with exec, in order of
    /// time. A log of a process in another pid namespace has an unknown id; it belongs to the last program before it.
    pub fn without_log(&self, logs: &[(u32, u64)]) -> Vec<Execution> {
        let pids: HashSet<u32> = self.executions.iter().map(|execution| execution.pid).collect();
        let mut has_log = vec![false; self.executions.len()];
        for &(pid, start_ns) in logs {
            let may_be = |index: &usize| {
                let execution = &self.executions[*index];
                let is_process = execution.pid == pid || !pids.contains(&pid);
                !has_log[*index] && is_process && execution.time_ns <= start_ns
            };
            if let Some(index) = (0..has_log.len()).rev().find(may_be) {
                has_log[index] = true;
            }
        }
        let without = self.executions.iter().zip(has_log).filter(|(_, has_log)| !has_log);
        without.map(|(execution, _)| execution.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(executions: &[(u64, u32, &str)]) -> Started {
        let execution = |&(time_ns, pid, name): &(u64, u32, &str)| Execution::new(time_ns, pid, name);
        Started { executions: executions.iter().map(execution).collect(), ..Started::default() }
    }

    #[test]
    fn programs_without_a_log_are_those_that_no_log_follows() {
        let all = started(&[(10, 1, "env"), (20, 1, "app"), (30, 2, "sh"), (40, 3, "static"), (50, 2, "ls")]);
        let names = |logs: &[(u32, u64)]| -> Vec<String> {
            all.without_log(logs).into_iter().map(|execution| execution.name).collect()
        };
        assert_eq!(names(&[(1, 11), (1, 21), (2, 31), (2, 51)]), ["static"]);
        assert_eq!(names(&[(1, 21), (2, 31), (2, 51)]), ["env", "static"], "a log belongs to the program before it");
        assert_eq!(names(&[(1, 11), (1, 21), (2, 31), (7, 41), (2, 51)]), [""; 0], "3 is 7 in its own namespace");
    }

    #[test]
    fn a_process_runs_until_its_last_thread_ends() {
        let (mut history, own) = (History::default(), process::id());
        let mut apply = |change| history.apply(1, change);
        let (first, second, other) = (own + 1, own + 2, own + 3);
        apply(Change::Fork { pid: first, parent: own });
        apply(Change::Fork { pid: first, parent: first });
        apply(Change::Exit { pid: first });
        apply(Change::Fork { pid: second, parent: first });
        apply(Change::Exec { pid: second, name: "app".to_string() });
        apply(Change::Fork { pid: other, parent: own });
        // Processes of nobody's concern.
        apply(Change::Fork { pid: own + 5, parent: own + 4 });
        apply(Change::Exec { pid: own + 5, name: "other".to_string() });
        apply(Change::Exit { pid: own + 4 });
        apply(Change::Exit { pid: first });
        assert_eq!(history.started.executions[0].ended_ns, None);
        history.apply(5, Change::Fork { pid: own + 6, parent: second });
        history.apply(6, Change::Exec { pid: own + 6, name: "short".to_string() });
        history.apply(7, Change::Exit { pid: own + 6 });
        assert_eq!(history.started.executions[1].ended_ns, Some(7));
        history.started.executions.truncate(1);
        let started = history.into_started();
        assert_eq!(started.running, HashMap::from([(second, first), (other, other)]));
        assert_eq!(started.executions.iter().map(|execution| execution.root).collect::<Vec<_>>(), [first]);
        assert_eq!(started.of(first).running, HashMap::from([(second, first)]));
    }
}

//! The processes and programs that a recorded program starts, as the kernel reports them: to find those without a log.
//!
//! A program may be executed without the recorder: it is static or set-user-ID, or its environment was cleared. A child
//! may outlive the program and the recording. Neither leaves a trace, so only the kernel can name them. Its events
//! (`perf_event_open`) cost time only at forks, execs and ends.

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

/// Data bytes of a ring: about 4000 forks, execs and ends on one processor between two reads.
const RING_BYTES: usize = 256 << 10;
/// Interval between two reads of the rings.
const INTERVAL: Duration = Duration::from_millis(20);
/// Minimum age of a record when it is read. By then all rings contain the records before it.
const SETTLED_NS: u64 = 1_000_000;

/// A program that a process executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// Process id.
    pub pid: u32,
    /// The first 15 bytes of the program's file name.
    pub name: String,
}

/// What was started until now.
#[derive(Debug, Default)]
pub struct Started {
    /// Executed programs, in order of time.
    pub executions: Vec<Execution>,
    /// Processes that have not ended.
    pub running: HashSet<u32>,
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
        let opened = processor::online().into_iter().map(open_on).collect::<io::Result<Vec<_>>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut history = History { rings: opened, ..History::default() };
            while !stopped.load(Ordering::Acquire) {
                thread::sleep(INTERVAL);
                history.look(ClockPair::now().ns.saturating_sub(SETTLED_NS));
            }
            history.look(u64::MAX);
            history.started
        };
        Ok(Self { stop, thread: thread::Builder::new().name("processes".into()).spawn(run)? })
    }

    /// Stops, and returns what was started.
    pub fn end(self) -> Started {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or(Started { is_incomplete: true, ..Started::default() })
    }
}

/// The records of one processor.
fn open_on(processor: i32) -> io::Result<(OwnedFd, Ring)> {
    let flags = FLAG_TASK | FLAG_COMM | FLAG_COMM_EXEC | FLAG_INHERIT | FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCKID;
    let request = Request {
        kind: TYPE_SOFTWARE,
        config: SOFTWARE_DUMMY,
        sample_type: SAMPLE_TIME,
        flags: flags | FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HV,
        clockid: libc::CLOCK_MONOTONIC,
        ..Request::default()
    };
    let event = perf::open(&request, Some(processor))?;
    let ring = Ring::map(&event, RING_BYTES)?;
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

/// The records so far.
#[derive(Default)]
struct History {
    rings: Vec<(OwnedFd, Ring)>,
    /// Records that are too new to be in order.
    waiting: Vec<(u64, Change)>,
    /// Threads of each running process.
    threads: HashMap<u32, u32>,
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
            // Threads of the recorder itself.
            Change::Fork { pid, .. } | Change::Exit { pid } if pid == process::id() => {}
            Change::Fork { pid, parent } => {
                let threads = self.threads.entry(pid).or_default();
                *threads = if pid == parent { *threads + 1 } else { 1 };
                self.started.running.insert(pid);
            }
            Change::Exec { pid, name } => self.started.executions.push(Execution { time_ns, pid, name }),
            Change::Exit { pid } => {
                let threads = self.threads.entry(pid).or_insert(1);
                *threads -= 1;
                if *threads == 0 {
                    self.threads.remove(&pid);
                    self.started.running.remove(&pid);
                }
            }
        }
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
        let execution = |&(time_ns, pid, name): &(u64, u32, &str)| Execution { time_ns, pid, name: name.to_string() };
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
        let mut history = History::default();
        for change in [
            Change::Fork { pid: 5, parent: 4 },
            Change::Fork { pid: 5, parent: 5 },
            Change::Exit { pid: 5 },
            Change::Fork { pid: 6, parent: 5 },
        ] {
            history.apply(1, change);
        }
        assert_eq!(history.started.running, HashSet::from([5, 6]));
        history.apply(2, Change::Exit { pid: 5 });
        assert_eq!(history.started.running, HashSet::from([6]));
    }
}

//! Records processes that run already: a program with all processes that it has started, from a consistent start on.
//!
//! Each process is stopped once (ptrace), for as long as it takes to open the events of its threads and to read its
//! mappings and page tables. After that it runs freely: the kernel's tracepoints report what follows. If the recorder ends,
//! by whatever cause, the kernel lets stopped threads run on and drops the events, so nothing of it remains.
//!
//! | Module | |
//! |---|---|
//! | `target` | the process: whether it can be recorded, and what it inherited |
//! | `stopped` | all threads of a process, stopped |
//! | `memory` | the mappings and pages of a stopped process |

mod memory;
mod stopped;
mod target;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hksim_linux_probe::sysfs;
use hksim_memory_trace::{Beginning, Header, Inherited, Limits, Op, ThpDisabled};
use libc::pid_t;

use crate::call_log::CallLog;
use crate::clock::monotonic_ns;
use crate::error::{AttachError, MemoryRecordError};
use crate::fault_check::FaultCheck;
use crate::files::Files;
use crate::interpreter::Interpreter;
use crate::kernel_events::KernelEvents;
use crate::machine;
use crate::merge::{BACKLOG_BYTES_MAX, Merger};
use crate::record::{Record, What};
use crate::recorder::{LeftOut, RecordingReport, report};
use crate::session::Session;
use crate::source::Events;
use crate::spaces::{Space, ThpState};
use crate::stack_dump;
use crate::thp_guard::ThpGuard;
use memory::AtStop;
use stopped::StoppedProcess;
use target::Target;

/// What is recorded of a running program, and where.
#[derive(Clone, Debug)]
pub struct AttachOptions {
    /// File of the process's recording; those of its children go to a directory next to it.
    pub output: PathBuf,
    /// End the recording after this time.
    pub duration: Option<Duration>,
    /// Huge pages of the recorded processes.
    pub huge_pages: HugePagesOfRunning,
    /// Record the call stacks of calls that make mappings, up to this number of frames.
    pub stack_depth: Option<u32>,
}

/// Whether the recorded processes keep their huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePagesOfRunning {
    /// The processes stay as they are. Touches inside huge pages are not seen.
    #[default]
    Unchanged,
    /// No new huge pages until the recording ends: each process is made to call `prctl(PR_SET_THP_DISABLE)`. That changes
    /// the program: it runs with small pages meanwhile, and those stay. Huge pages that it has already stay, too.
    SwitchedOff,
}

/// What the interpreter gets for a process that was attached to.
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    pub process: AttachedProcess,
    pub space: Space,
    pub threads: u32,
    /// What was there, as operations, each with the name of its mapping.
    pub operations: Vec<(Op, Option<String>)>,
}

/// What the header says about a process that was attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProcess {
    pub command: Vec<String>,
    pub directory: Option<String>,
    pub environment: BTreeMap<String, String>,
    pub personality: u32,
    pub limits: Limits,
    /// How long the process was stopped.
    pub stopped_ns: u64,
    /// Bytes of which it is unknown whether they were given up with `MADV_FREE`.
    pub lazy_unknown_bytes: u64,
}

/// Records a running process and its descendants until it ends, until `duration`, or until `must_stop`. `on_start` is
/// called when all of them have been attached to.
///
/// # Errors
/// The process cannot be attached to, or a file cannot be written.
pub fn attach(
    options: &AttachOptions,
    pid: u32,
    on_start: impl FnOnce(),
    mut must_stop: impl FnMut() -> bool,
) -> Result<RecordingReport, MemoryRecordError> {
    if options.stack_depth.is_some() && stack_dump::SAMPLED.is_empty() {
        return Err(MemoryRecordError::StacksUnsupported);
    }
    let root = Target::open(pid)?;
    let lifetime = process_descriptor(pid).map_err(|why| root.refused(why))?;
    let mut guard = match options.huge_pages {
        HugePagesOfRunning::Unchanged => None,
        HugePagesOfRunning::SwitchedOff => Some(ThpGuard::start(ThpDisabled::Off).ok_or(AttachError::NoGuard)?),
    };
    raise_descriptor_limit();
    let (begin, start_ns) = (Instant::now(), monotonic_ns());
    let events = KernelEvents::without_threads(options.stack_depth.is_some()).map_err(|why| no_events(&root, why))?;
    let mut family = Family { events, guard: guard.as_mut(), left_out: Vec::new(), records: Vec::new() };
    family.attach(&root)?;
    let Family { events, left_out, records, .. } = family;
    let files = Files::create(&options.output, header(options, &root, start_ns), start_ns)?;
    let log = Arc::new(CallLog::default());
    records.into_iter().for_each(|record| log.push_earlier(record));
    let events = Events::of_kernel(events);
    let visibility = events.visibility;
    let mut session = Session {
        interpreter: Interpreter::of_running(options.stack_depth),
        files,
        merger: Merger::new(events, log, BACKLOG_BYTES_MAX),
        guard,
        check: FaultCheck::new(0),
        program_end: None,
    };
    on_start();
    let deadline = options.duration.map(|duration| begin + duration);
    let is_over = || must_stop() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let watched = session.watch(|| has_ended(&lifetime), is_over);
    session.complete(watched.map(|_| None))?;
    let report = report(session, visibility, options.stack_depth.is_some())?;
    Ok(RecordingReport { left_out, elapsed_s: begin.elapsed().as_secs_f64(), ..report })
}

/// What a user without rights lacks. A program that hksim starts can be stopped at its memory calls instead, by a filter of
/// system calls; a running program would keep that filter.
fn no_events(root: &Target, why: MemoryRecordError) -> MemoryRecordError {
    let MemoryRecordError::NotPermitted { why } = why else { return why };
    let level = sysfs::text("/proc/sys/kernel/perf_event_paranoid");
    let paranoid = level.map_or(String::new(), |level| format!(" (kernel.perf_event_paranoid is {level})"));
    AttachError::NoEvents { pid: root.pid, why, paranoid }.into()
}

fn header(options: &AttachOptions, root: &Target, start_ns: u64) -> Header {
    let process = root.process(0, 0);
    let has_random_addresses = !machine::has_fixed_addresses(process.personality);
    let machine = machine::machine(has_random_addresses, options.huge_pages == HugePagesOfRunning::SwitchedOff);
    Header {
        producer: concat!("hksim ", env!("CARGO_PKG_VERSION")).to_string(),
        run_id: format!("{start_ns:x}-{}", root.pid),
        command: process.command,
        input: None,
        directory: process.directory,
        environment: process.environment,
        pid: root.pid,
        image: 0,
        beginning: Beginning::Attached { stopped_ns: 0, lazy_unknown_bytes: 0 },
        visibility: Events::VISIBILITY_OF_KERNEL,
        machine,
        inherited: Inherited::default(),
        stack_depth: options.stack_depth,
        history: Vec::new(),
    }
}

/// The processes that were attached to.
struct Family<'a> {
    events: KernelEvents,
    guard: Option<&'a mut ThpGuard>,
    left_out: Vec<LeftOut>,
    /// One for each process, in order of time.
    records: Vec<Record>,
}

impl Family<'_> {
    /// Attaches to a process and to its descendants. A process's children are listed while it is stopped: later ones have
    /// its events.
    fn attach(&mut self, root: &Target) -> Result<(), MemoryRecordError> {
        let own = std::process::id();
        let (mut seen, mut waiting) = (BTreeSet::from([own, root.pid]), VecDeque::from(self.attach_one(root)?));
        while let Some(pid) = waiting.pop_front() {
            if !seen.insert(pid) {
                continue;
            }
            match Target::open(pid).map_err(MemoryRecordError::from).and_then(|target| self.attach_one(&target)) {
                Ok(children) => waiting.extend(children),
                // It was listed, and has ended meanwhile.
                Err(MemoryRecordError::Attach(AttachError::Process { why, .. })) if why.is_end() => {}
                Err(why) => self.left_out.push(LeftOut { pid, why: why.to_string() }),
            }
        }
        Ok(())
    }

    /// Attaches to one process. Returns its children.
    fn attach_one(&mut self, target: &Target) -> Result<Vec<u32>, MemoryRecordError> {
        let thp = self.thp_of(target)?;
        // The end of the tracing thread detaches threads that did not stop in time, too.
        let attached = thread::scope(|scope| scope.spawn(|| self.stop_and_read(target, thp)).join());
        let (record, children) = attached.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.records.push(record);
        Ok(children)
    }

    /// Whether a process can get huge pages; switches them off if that was asked for.
    fn thp_of(&mut self, target: &Target) -> Result<ThpState, AttachError> {
        let Some(guard) = &mut self.guard else { return Ok(ThpState { disable: target.thp, is_chosen: false }) };
        match guard.switch_off(target.pid) {
            Some(disable) => Ok(ThpState { disable, is_chosen: disable == ThpDisabled::All }),
            None => Err(AttachError::HugePagesStay { pid: target.pid }),
        }
    }

    /// Stops a process, opens the events of its threads, reads its memory, and lets it run on.
    fn stop_and_read(&mut self, target: &Target, thp: ThpState) -> Result<(Record, Vec<u32>), MemoryRecordError> {
        run_first();
        let begin = Instant::now();
        let process = StoppedProcess::stop(target)?;
        for &thread in process.threads() {
            let failed = |source| AttachError::Events { pid: target.pid, threads: process.threads().len(), source };
            self.events.add(thread).map_err(failed)?;
        }
        let (children, memory) = (process.children(), AtStop::read(target)?);
        let (threads, time_ns) = (process.threads().len() as u32, monotonic_ns());
        drop(process);
        let stopped_ns = begin.elapsed().as_nanos() as u64;
        let memory = memory.complete(target)?;
        let process = target.process(stopped_ns, memory.lazy_unknown_bytes);
        let (space, operations) = memory.into_space(thp);
        let attached = Attached { process, space, threads, operations };
        let what = What::Attached(Box::new(attached));
        Ok((Record { time_ns, pid: target.pid, tid: target.pid, what }, children))
    }
}

/// Lets the calling thread run before others: while it waits for a processor, the process would stay stopped. No effect
/// without the right to.
fn run_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads the value. The thread ends soon, and with it its priority.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const priority) };
}

/// Each thread needs several open files for each processor.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads and writes the value. Without the higher limit, processes with many threads are refused.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// A descriptor that becomes readable when the process ends.
fn process_descriptor(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let got = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as pid_t, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no other value owns.
    Ok(unsafe { OwnedFd::from_raw_fd(got as i32) })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the kernel writes to the one value; it does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

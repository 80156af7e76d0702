//! Replays under the limit of a memory control group: whether the kernel kills the replay, and in which event.
//!
//! The child prepares itself and stops. Only then is it moved into the group, so everything that it has belongs to the
//! group of its parent, and the limit is for the heap alone: its pages, the page tables that are new, and the kernel's
//! records of mappings. After the last event the child stops again, and reports without a limit.

use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

use hksim_engine::{Driver, Heaps, TouchRule};
use hksim_linux_probe::memory_group::MemoryGroup;
use hksim_linux_probe::shared_word::SharedWord;
use hksim_linux_probe::signal_handlers::EndingSignals;
use hksim_policy::PreparedPolicy;
use hksim_trace::event::Event;
use serde::{Deserialize, Serialize};

use crate::calls::Counted;
use crate::error::{ChildError, ReplayError};
use crate::malloc_heap::Malloc;
use crate::native;
use crate::ordered::{step, tables};
use crate::parent::{checked, spawn};
use crate::prefault::{MeasuredHeap, prefault};
use crate::protocol::{self, Report};
use crate::spec::{Job, Mode, ReplaySpec, Run, Target};
use crate::window::{PreparedTrace, WindowDriver, drive};

/// Interval between two looks at a replay.
const INTERVAL: Duration = Duration::from_millis(1);

/// What happened to a replay under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedReplay {
    /// It performed every event.
    Survived,
    /// The kernel killed it in this event, counted from 1.
    Killed {
        /// The event.
        event: u64,
    },
}

/// Replays a trace under a limit in bytes, in trace order. Children that the program forks are left out. The group is
/// removed afterwards, also if a signal to this process ends the replay.
///
/// The inner error is the reason why this machine cannot do it.
///
/// # Errors
/// The replay cannot start, or failed for another reason, or a signal came.
pub fn replay_limited(spec: &ReplaySpec, limit_bytes: u64) -> Result<Result<LimitedReplay, String>, ReplayError> {
    let spec = checked(spec)?;
    if spec.mode == Mode::Threaded || matches!(spec.on, Target::Design { .. }) {
        return Ok(Err("only ordered replays on native or on a malloc library run under a memory limit".into()));
    }
    // Until the group is removed: values are dropped in the opposite order.
    let signals = EndingSignals::begin();
    let group = match MemoryGroup::create() {
        Ok(group) => group,
        Err(reason) => return Ok(Err(reason)),
    };
    let failed = |action| move |source| ReplayError::Child { action, source };
    let progress = SharedWord::create().map_err(failed("share memory with"))?;
    let job = Job {
        spec: ReplaySpec { forks: Vec::new(), ..spec.clone() },
        run: Run::Limited,
        cpu: current_cpu(),
        alone_from: 0.0,
        progress: Some(progress.path()),
    };
    let job = serde_json::to_vec(&job).map_err(|why| failed("prepare the job of")(why.into()))?;
    let mut child = spawn(&spec).map_err(failed("start"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the child died before it read its job, its exit status shows that.
        let _ = stdin.write_all(&job);
    }
    let outcome = supervise(&mut child, &group, limit_bytes, &progress, &signals);
    // The terminal sends its signals to the child, too, whose end is then no result.
    let outcome = if signals.came() { Err(ReplayError::Interrupted) } else { outcome };
    if outcome.is_err() {
        // It may be stopped, and nothing waits for it otherwise.
        let _ = child.kill();
        let _ = child.wait();
    }
    outcome.map(Ok)
}

fn supervise(
    child: &mut Child,
    group: &MemoryGroup,
    limit_bytes: u64,
    progress: &SharedWord,
    signals: &EndingSignals,
) -> Result<LimitedReplay, ReplayError> {
    let failed = |action| move |source| ReplayError::Child { action, source };
    if stops(child.id(), signals)? {
        group.set_limit(Some(limit_bytes)).map_err(failed("limit the memory of"))?;
        group.add(child.id()).map_err(failed("limit the memory of"))?;
        go_on(child.id());
        if stops(child.id(), signals)? {
            group.set_limit(None).map_err(failed("lift the limit of"))?;
            go_on(child.id());
            return finished(child);
        }
    }
    let status = child.wait().map_err(failed("wait for"))?;
    let kills = group.kills().map_err(failed("count the kills of"))?;
    match status.signal() {
        Some(libc::SIGKILL) if kills > 0 => Ok(LimitedReplay::Killed { event: progress.get() }),
        _ => Err(crate::parent::died(Run::Limited, status)),
    }
}

/// Reads the report of a child that performed every event.
fn finished(child: &mut Child) -> Result<LimitedReplay, ReplayError> {
    let received = match child.stdout.take() {
        Some(stdout) => protocol::receive(stdout),
        None => Ok(None),
    };
    let status = child.wait().map_err(|source| ReplayError::Child { action: "wait for", source })?;
    match received {
        Ok(Some(received)) => match received.report {
            Report::Limited => Ok(LimitedReplay::Survived),
            other => Err(crate::parent::unexpected(Run::Limited, &other)),
        },
        Ok(None) => Err(crate::parent::died(Run::Limited, status)),
        Err(why) => Err(ReplayError::Garbled { run: "limited", why }),
    }
}

/// Waits until a child stops, which returns true, or ends, or a signal to this process came. Its end stays to be waited
/// for.
fn stops(pid: u32, signals: &EndingSignals) -> Result<bool, ReplayError> {
    // SAFETY: zeroed is a valid value, which the kernel overwrites.
    let mut seen: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let wait = |seen: &mut libc::siginfo_t, options| {
        // SAFETY: the kernel writes to `seen` only.
        match unsafe { libc::waitid(libc::P_PID, pid, seen, options) } {
            0 => Ok(()),
            _ => Err(ReplayError::Child { action: "wait for", source: io::Error::last_os_error() }),
        }
    };
    // SAFETY: the field of a zeroed value, or of one that `waitid` has filled for a child.
    let is_waiting = |seen: &libc::siginfo_t| unsafe { seen.si_pid() } == 0;
    loop {
        wait(&mut seen, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::WNOHANG)?;
        if signals.came() {
            return Err(ReplayError::Interrupted);
        }
        if !is_waiting(&seen) {
            break;
        }
        thread::sleep(INTERVAL);
    }
    if seen.si_code != libc::CLD_STOPPED {
        return Ok(false);
    }
    wait(&mut seen, libc::WSTOPPED)?;
    Ok(true)
}

/// The CPU of this thread. On one CPU, a replay finds all memory that the kernel has charged in advance: what other
/// CPUs hold, up to 64 pages each, is returned too late if they are busy.
fn current_cpu() -> Option<usize> {
    // SAFETY: touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

fn go_on(pid: u32) {
    // SAFETY: sends a signal to a child that was not waited for, so its id is not reused.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGCONT) };
}

/// Drives an allocator, and notes the number of each event before it is performed.
struct Noted<A: Heaps> {
    /// Never dropped, as in a measured run.
    heap: ManuallyDrop<Driver<A>>,
    progress: SharedWord,
}

impl<A: Heaps> WindowDriver for Noted<A> {
    #[inline]
    fn step(&mut self, event: &Event, number: u64) -> Result<(), ChildError> {
        self.progress.set(number + 1);
        step(&mut self.heap, event, number)
    }

    fn stop(&mut self, _events: u64) -> Result<(), ChildError> {
        Ok(())
    }
}

/// The limited run on the SuperSlab allocator.
pub(crate) fn on_native(
    plan: PreparedPolicy,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    progress: Option<&Path>,
) -> Result<Report, ChildError> {
    let ready = native::ready(&plan, trace);
    run(trace, MeasuredHeap::Reservation, progress, || native::open(plan, Counted::default(), ready, touch, |_| {}))
}

/// The limited run on the process's `malloc`.
pub(crate) fn on_malloc(
    library: Option<&Path>,
    touch: TouchRule,
    trace: &mut PreparedTrace,
    progress: Option<&Path>,
) -> Result<Report, ChildError> {
    let tables = tables(trace);
    run(trace, MeasuredHeap::Process { library }, progress, || Ok(Driver::with_tables(Malloc, tables, touch)))
}

fn run<A: Heaps>(
    trace: &mut PreparedTrace,
    heap: MeasuredHeap<'_>,
    progress: Option<&Path>,
    open: impl FnOnce() -> Result<Driver<A>, ChildError>,
) -> Result<Report, ChildError> {
    let progress = progress.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput)).and_then(SharedWord::open);
    let progress = progress.map_err(ChildError::system("share memory with the parent"))?;
    prefault(heap);
    stop_here();
    let mut noted = Noted { heap: ManuallyDrop::new(open()?), progress };
    drive(trace, &mut noted)?;
    stop_here();
    Ok(Report::Limited)
}

/// Stops this process until the parent has changed its limit.
fn stop_here() {
    // SAFETY: raising a signal does not access memory.
    unsafe { libc::raise(libc::SIGSTOP) };
}

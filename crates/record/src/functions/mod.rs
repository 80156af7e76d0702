//! Records the calls of named functions of a running process: for static programs, and for allocators of a program's own.
//!
//! The kernel's breakpoints (`probes.rs`) report entries and returns, with arguments, results and times. Nothing is loaded
//! into the process, and nothing is left in it. A probed call costs some microseconds.

mod cost;
mod forks;
mod named;
mod order;
mod pairs;
mod probes;
mod processes;
mod samples;
mod subject;
mod symbols;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use hksim_linux_probe::uprobe::Source;

use crate::clock::monotonic_ns;
use crate::control::EndReason;
use crate::error::RecordError;
use crate::output;
use crate::report::{FunctionCalls, Probed, RecordReport};
use crate::run::{EndOf, EndingSignals};
use crate::signals::{self, Interruptible};
use crate::traces::is_running;
use crate::watch::Progress;

pub use named::{Functions, NamedFunction};
use probes::{AtReturn, Place, Probes};
use processes::{Processes, with_return};
use subject::Subject;
use symbols::{CodeFile, Found};

/// Interval between two reads of the rings, in milliseconds.
const INTERVAL_MS: i32 = 5;
/// Minimum age of an event when it is taken. By then all rings contain the records before it, also if a virtual processor
/// was stopped between the time of a record and the record.
const SETTLED_NS: u64 = 50_000_000;
/// Interval between two reports of progress.
const SHOWN: Duration = Duration::from_millis(250);

/// Records calls of `functions` in process `pid` and in the children that it forks, until it ends, until `duration` has
/// passed, or until SIGHUP, SIGINT, SIGQUIT or SIGTERM comes. Calls `show` when the recording has begun, and a few times a
/// second from then on.
///
/// # Errors
/// The process cannot be recorded ([`RecordError::CannotAttach`]), or no call was seen.
pub fn record_functions(
    output: &Path,
    duration: Option<Duration>,
    functions: &Functions,
    pid: u32,
    show: &mut dyn FnMut(&Progress),
) -> Result<RecordReport, RecordError> {
    let _interruptible = Interruptible::begin();
    let refused = |why: String| RecordError::CannotAttach { pid, why };
    let source = Source::find().ok_or_else(|| refused(NO_SOURCE.to_string()))?;
    let subject = Subject::check(pid).map_err(refused)?;
    let files = CodeFile::of_process(pid);
    if let Some(why) = symbols::why_not_probed(&files, &functions.0) {
        return Err(refused(why.to_string()));
    }
    let cost_ns = cost::of_call_ns(source).map_err(|why| refused(forbidden(&why)))?;
    let found = symbols::find_all(&files, &functions.0).map_err(refused)?;
    let each = symbols::once_each(&functions.0, found).map_err(refused)?;
    let (functions, found): (Vec<NamedFunction>, Vec<Found>) = each.into_iter().unzip();
    let output = output::absolute(output)?;
    output::check(&output, Path::new(&format!("/proc/{pid}/exe")))?;
    let end = EndOf::process(pid).ok_or_else(|| match is_running(pid) {
        true => refused("the kernel has no pidfds (before Linux 5.3)".into()),
        false => refused("it has ended".into()),
    })?;
    let probes = Probes::open(source, &places(&found, &functions))
        .map_err(|(why, index)| refused(not_probed(&why, index.map(|index| (&functions[index], &found[index])))))?;
    signals::check()?;
    let recorder = Recorder { subject: &subject, functions: &functions, output: &output, duration };
    let recorded = recorder.record(probes, &end, show)?;
    let RecordedCalls { processes, lost, end_reason, recorded_s } = recorded;
    let calls = processes.counts().iter().zip(&functions).zip(found);
    let calls = calls.map(|((counts, named), found)| FunctionCalls {
        name: named.name.clone(),
        role: named.role,
        file: found.shown,
        calls: counts.calls,
        impossible_calls: counts.impossible,
    });
    let probed = Probed {
        pid,
        functions: calls.collect(),
        call_cost_ns: cost_ns,
        records_lost: lost,
        foreign_calls: processes.foreign_calls(),
    };
    if probed.functions.iter().all(|function| function.calls == 0) {
        return Err(refused(format!("it called none of these functions in {recorded_s:.1} s")));
    }
    let began = Instant::now();
    let traces = processes.end(pid, lost)?;
    if traces.is_empty() {
        return Err(refused(no_call_recorded(&probed)));
    }
    Ok(RecordReport {
        traces,
        end_reason,
        recorded_s: Some(recorded_s),
        converted_s: began.elapsed().as_secs_f64(),
        probed: Some(probed),
        ..RecordReport::default()
    })
}

/// The kernel's `ENOTSUPP`, which it returns for some instructions, and libc does not name.
const NOT_SUPPORTED: i32 = 524;
/// Why the kernel has no probes.
const NO_SOURCE: &str = "this kernel has no uprobes (CONFIG_UPROBE_EVENTS), which report the calls of named functions";

/// Where the functions are, and what is read at their returns.
fn places(found: &[Found], functions: &[NamedFunction]) -> Vec<Place> {
    let place = |((found, function), with_return): ((&Found, &NamedFunction), bool)| Place {
        file: found.file.clone(),
        offset: found.offset,
        at_return: match with_return {
            false => AtReturn::Nothing,
            true if function.stores_result() => AtReturn::Stack,
            true => AtReturn::Result,
        },
    };
    found.iter().zip(functions).zip(with_return(functions)).map(place).collect()
}

/// Why the kernel permits no probe at all.
fn forbidden(why: &io::Error) -> String {
    match why.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "calls of named functions are seen by uprobes, which need root (CAP_SYS_ADMIN); use sudo".into()
        }
        _ => format!("uprobes cannot be opened: {why}"),
    }
}

/// Why a probe cannot be set.
fn not_probed(why: &io::Error, at: Option<(&NamedFunction, &Found)>) -> String {
    match (why.raw_os_error(), at) {
        (Some(libc::EMFILE), _) => {
            "each function needs two open files per processor; raise the limit (ulimit -n)".into()
        }
        (Some(NOT_SUPPORTED | libc::EOPNOTSUPP), Some((function, _))) => {
            format!("the first instruction of {} cannot be probed; name a function that calls it", function.name)
        }
        (_, Some((function, found))) => format!("{} in {} cannot be probed: {why}", function.name, found.shown),
        (_, None) => format!("the kernel's events cannot be read: {why}"),
    }
}

/// Why no call was recorded, though some were seen.
fn no_call_recorded(probed: &Probed) -> String {
    match probed.functions.iter().find(|function| function.impossible_calls > 0) {
        Some(FunctionCalls { name, role, .. }) => format!(
            "none of the calls of {name} has the arguments of {role}; give the number of its first argument \
             ({name}={role}@2), or another role"
        ),
        None => "no call of these functions returned while they were recorded".into(),
    }
}

/// What was recorded.
struct RecordedCalls {
    processes: Processes,
    lost: u64,
    end_reason: Option<EndReason>,
    recorded_s: f64,
}

/// What is recorded.
struct Recorder<'a> {
    subject: &'a Subject,
    functions: &'a [NamedFunction],
    output: &'a Path,
    duration: Option<Duration>,
}

impl Recorder<'_> {
    fn record(
        &self,
        mut probes: Probes,
        end: &EndOf,
        show: &mut dyn FnMut(&Progress),
    ) -> Result<RecordedCalls, RecordError> {
        let signals = EndingSignals::begin();
        probes.enable();
        // From now on every probe is enabled.
        let start_ns = monotonic_ns();
        let began = Instant::now();
        let mut processes = Processes::begin(self.subject, self.functions, self.output, start_ns)?;
        let mut shown: Option<Instant> = None;
        let end_reason = loop {
            let has_ended = end
                .came_within(INTERVAL_MS)
                .map_err(|source| RecordError::Start { command: format!("process {}", self.subject.pid), source })?;
            take_all(&mut probes, &mut processes, monotonic_ns().saturating_sub(SETTLED_NS))?;
            if shown.is_none_or(|shown| shown.elapsed() >= SHOWN) {
                show(&progress(began, &probes, &processes));
                shown = Some(Instant::now());
            }
            if has_ended || processes.are_over() {
                break None;
            }
            if signals.take().is_some() {
                break Some(EndReason::Request);
            }
            if self.duration.is_some_and(|duration| began.elapsed() >= duration) {
                break Some(EndReason::Duration);
            }
        };
        let end_ns = monotonic_ns();
        probes.disable();
        let recorded_s = began.elapsed().as_secs_f64();
        take_all(&mut probes, &mut processes, end_ns)?;
        let lost = probes.lost();
        Ok(RecordedCalls { processes, lost, end_reason, recorded_s })
    }
}

fn take_all(probes: &mut Probes, processes: &mut Processes, until_ns: u64) -> Result<(), RecordError> {
    probes.drain(until_ns).iter().try_for_each(|event| processes.take(event))
}

fn progress(began: Instant, probes: &Probes, processes: &Processes) -> Progress {
    Progress {
        elapsed: began.elapsed(),
        images: processes.processes(),
        words: processes.events(),
        log_bytes: 0,
        events_lost: probes.lost(),
        is_recording: true,
    }
}

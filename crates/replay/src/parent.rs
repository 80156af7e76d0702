//! The parent: starts a fresh child for each run, and merges their reports.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::environment::Environment;
use crate::error::ReplayError;
use crate::explained::Record;
use crate::protocol::{self, ControlReport, Received, Report};
use crate::result::{Replayed, Skipped};
use crate::spec::{Job, Mode, ReplaySpec, Run, Target};
use crate::usage::wait;
use hksim_linux_probe::lifetime::die_with_parent;
use hksim_policy::vocabulary::Align;

/// The hidden first argument that makes a program call [`child_main`](crate::child_main).
pub const CHILD_ARGUMENT: &str = "__replay-child";
/// The second argument of a child that runs a design. It starts in `main`, where the program's designs are known.
const DESIGN_ARGUMENT: &str = "design";

/// The arguments of a child.
pub(crate) fn child_arguments(on: &Target) -> impl Iterator<Item = &'static str> {
    let design = matches!(on, Target::Design { .. }).then_some(DESIGN_ARGUMENT);
    std::iter::once(CHILD_ARGUMENT).chain(design)
}

/// Replays a trace. Performs a control run without a heap, then the runs that [`ReplaySpec::measure`] requests. Each
/// run has a fresh child process of this program. The control run of a `malloc` has the C library's, so that the memory
/// which a library takes when it is loaded counts as the library's. The program's `main` must call [`child_main`](crate::child_main) if
/// its first argument is [`CHILD_ARGUMENT`].
///
/// # Errors
/// A run cannot start. A figure that cannot be measured here is null in the result, with a reason.
pub fn replay(spec: &ReplaySpec) -> Result<Replayed, ReplayError> {
    let spec = &checked(spec)?;
    let environment = Environment::read();
    let ControlReport { control, start } = match run(&control_of(spec), Run::Control)?.report {
        Report::Control(report) => report,
        other => return Err(unexpected(Run::Control, &other)),
    };
    let mut replayed = Replayed::default();
    if spec.measure.pages {
        let received = run(spec, Run::Measured)?;
        let Report::Measured(measured) = received.report else {
            return Err(unexpected(Run::Measured, &received.report));
        };
        replayed = measured.replayed;
        replayed.marks = measured.marks;
        for (mark, pages) in replayed.marks.iter_mut().zip(received.pages) {
            mark.pages = pages;
        }
        if let Some((own, control)) = measured.start.zip(start) {
            replayed.add_startup(own.beyond(control));
        }
    } else {
        replayed.skipped.push(Skipped::new("installs, faults, traps, rss, marks", "not requested"));
    }
    if spec.measure.time {
        match run(spec, Run::Timed)?.report {
            Report::Timed(timing) => {
                replayed.ops_per_s = Some(timing.sample.calls_per_s());
                replayed.timed = Some(timing.sample);
                match timing.dtlb {
                    Ok(events) => replayed.dtlb = Some(events),
                    Err(reason) => replayed.skipped.push(Skipped::new("dtlb", reason)),
                }
            }
            other => return Err(unexpected(Run::Timed, &other)),
        }
    } else {
        replayed.skipped.push(Skipped::new("ops_per_s, cpu_ns_per_call, dtlb", "not requested"));
    }
    replayed.control = control;
    if matches!(spec.on, Target::Malloc { .. }) {
        // Whole-process counts: subtract the cost of the replay itself.
        replayed.faults = replayed.faults.map(|faults| faults.saturating_sub(control.faults));
        replayed.traps = replayed.traps.zip(control.traps).map(|(traps, own)| traps.saturating_sub(own));
    }
    replayed.environment = environment.finish();
    Ok(replayed)
}

/// The replay without a heap, and without the library of a `malloc`.
pub(crate) fn control_of(spec: &ReplaySpec) -> ReplaySpec {
    match spec.on {
        Target::Malloc { .. } => ReplaySpec { on: Target::C_LIBRARY, ..spec.clone() },
        Target::Native(_) | Target::Design { .. } => spec.clone(),
    }
}

/// Checks the specification before a child runs, and makes its paths absolute.
pub(crate) fn checked(spec: &ReplaySpec) -> Result<ReplaySpec, ReplayError> {
    let mut spec = spec.clone();
    match &mut spec.on {
        Target::Native(design) => {
            let plan = design.prepare().map_err(ReplayError::Design)?;
            if plan.layout.align != Align::Arena && spec.mode == Mode::Threaded {
                return Err(ReplayError::MapsOfThreads);
            }
        }
        Target::Malloc { preload: Some(path), .. } => {
            let found = path.canonicalize();
            *path = found.map_err(|source| ReplayError::NoLibrary { path: path.clone(), source })?;
        }
        Target::Design { name, .. } if spec.mode == Mode::Threaded => {
            return Err(ReplayError::DesignThreads(name.clone()));
        }
        Target::Malloc { preload: None, .. } | Target::Design { .. } => {}
    }
    Ok(spec)
}

fn name(run: Run) -> &'static str {
    match run {
        Run::Control => "control",
        Run::Measured => "measured",
        Run::Timed => "timed",
        Run::Harness => "harness",
        Run::Pieces | Run::HarnessPieces => "timed in pieces",
        Run::Sampled => "sampled",
        Run::Apart => "sampled",
        Run::Explained(_) | Run::ExplainedStart(_) => "explained",
        Run::Limited => "limited",
        Run::System(..) => "system time",
    }
}

pub(crate) fn unexpected(run: Run, report: &Report) -> ReplayError {
    match report {
        Report::Failed { message } => ReplayError::Failed { message: message.clone() },
        Report::Refused { message } => ReplayError::Refused { message: message.clone() },
        _ => ReplayError::Garbled { run: name(run), why: "the report of another run".into() },
    }
}

pub(crate) fn run(spec: &ReplaySpec, run: Run) -> Result<Received, ReplayError> {
    run_on(spec, run, None)
}

/// [`run`] on one CPU only, if one is given.
pub(crate) fn run_on(spec: &ReplaySpec, run: Run, cpu: Option<usize>) -> Result<Received, ReplayError> {
    run_observed(spec, run, cpu, &mut |_| {})
}

/// [`run_on`], which passes each record of an explained run on.
pub(crate) fn run_observed(
    spec: &ReplaySpec,
    run: Run,
    cpu: Option<usize>,
    each: &mut dyn FnMut(Record),
) -> Result<Received, ReplayError> {
    perform(&Job { spec: spec.clone(), run, cpu, alone_from: 0.0, progress: None }, each)
}

/// Runs a child that performs a job.
pub(crate) fn perform(job: &Job, each: &mut dyn FnMut(Record)) -> Result<Received, ReplayError> {
    let Job { spec, run, .. } = job;
    let (run, failed) = (*run, |action| move |source| ReplayError::Child { action, source });
    let job = serde_json::to_vec(job).map_err(|why| failed("prepare the job of")(why.into()))?;
    let mut child = spawn(spec).map_err(failed("start"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the child died before it read its job, its exit status shows that.
        let _ = stdin.write_all(&job);
    }
    let received = match child.stdout.take() {
        Some(stdout) => protocol::receive_with(std::io::BufReader::with_capacity(1 << 18, stdout), each),
        None => Ok(None),
    };
    let (status, cpu_ns) = wait(&child).map_err(failed("wait for"))?;
    match received {
        Ok(Some(mut received)) => {
            if let Report::Timed(timing) = &mut received.report {
                timing.sample.start_end_ns = Some(cpu_ns.saturating_sub(timing.job_ns));
            }
            Ok(received)
        }
        Ok(None) => Err(died(run, status)),
        Err(why) => Err(ReplayError::Garbled { run: name(run), why }),
    }
}

pub(crate) fn died(run: Run, status: ExitStatus) -> ReplayError {
    died_in(name(run), status.code(), status.signal())
}

/// Why a child that ended with this exit code, or by this signal, has sent nothing.
pub(crate) fn died_in(run: &'static str, code: Option<i32>, signal: Option<i32>) -> ReplayError {
    let Some(signal) = signal else {
        return ReplayError::NoResult { run, code: code.unwrap_or(-1) };
    };
    let hint = match signal {
        libc::SIGKILL => ": killed from outside, or out of memory",
        libc::SIGBUS => ": reserved huge pages ran out, or the trace file shrank",
        libc::SIGSEGV | libc::SIGABRT => ": the allocator failed",
        libc::SIGSYS => ": the allocator makes a mapping call with signals blocked, which cannot be intercepted",
        _ => "",
    };
    ReplayError::Signal { run, signal, hint }
}

pub(crate) fn spawn(spec: &ReplaySpec) -> std::io::Result<Child> {
    let mut command = Command::new(PathBuf::from("/proc/self/exe"));
    command.args(child_arguments(&spec.on)).stdin(Stdio::piped()).stdout(Stdio::piped()).env_remove("LD_PRELOAD");
    command.envs(spec.on.environment());
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: `die_with_parent` is safe between fork and exec. The child dies with the thread that waits for it.
    unsafe {
        command.pre_exec(move || {
            die_with_parent(parent);
            Ok(())
        });
    }
    command.spawn()
}

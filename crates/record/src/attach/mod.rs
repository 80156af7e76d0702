//! Records a process that already runs.
//!
//! The process begins to record at its next call of an allocator function (`redirect.rs`), so it makes no call while it
//! is stopped. Blocks that it allocated earlier are unknown. It leaves the recording by itself: soon after the session
//! has ended, or after this process has died.

mod instructions;
mod leftover;
pub(crate) mod loaded;
mod places;
mod redirect;
mod target;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::background::StartedConversions;
use crate::control::{Control, EndReason};
use crate::error::RecordError;
use crate::output;
use crate::report::{Attachment, RecordReport};
use crate::run::{EndOf, EndingSignals, WatchDecision};
use crate::selection::Selection;
use crate::session::{Session, SessionConfig};
use crate::session_threads::SessionThreads;
use crate::signals::Interruptible;
use crate::touch_full::Merging;
use crate::traces::ConversionInputs;
use crate::watch::{Progress, Watch};
use crate::{Operators, Options, Touch, collect};

use places::{PlacedObject, SessionPlace};
use redirect::{Answer, Plan, Redirection};
use target::Target;

/// Longest interval between two checks of the process while it records, in milliseconds.
const WATCH_INTERVAL_MS: i32 = 250;
/// Interval between two checks of a process that has not begun to record, in milliseconds.
const BEGIN_INTERVAL_MS: i32 = 5;
/// Time in which a process leaves an ended recording if it makes calls.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Why it is unknown which programs the process started.
const UNOBSERVED: &str = "this is observed only for programs that hksim record starts";

/// Records process `pid` until it ends, until [`Options::duration`] has passed, or until SIGHUP, SIGINT, SIGQUIT or
/// SIGTERM comes. Children that it forks meanwhile are recorded, too. SIGUSR1 sets a mark; SIGUSR2 pauses or resumes.
/// Calls `show` when the recording has begun, and a few times a second from then on.
///
/// # Errors
/// The process cannot be recorded ([`RecordError::CannotAttach`]), or no event was recorded.
pub fn attach_watched(
    options: &Options,
    pid: u32,
    show: &mut dyn FnMut(&Progress),
) -> Result<RecordReport, RecordError> {
    let _interruptible = Interruptible::begin();
    let refused = |why: &str| RecordError::CannotAttach { pid, why: why.to_string() };
    if !matches!(options.touch, Touch::None) {
        return Err(refused("accesses are recorded only from a program's start"));
    }
    let target = Target::check(pid)?;
    if Control::of_process(pid).is_ok_and(|control| control.is_held()) {
        return Err(refused("another hksim record is recording it"));
    }
    let end = EndOf::process(pid).ok_or_else(|| refused("the kernel has no pidfds (before Linux 5.3)"))?;
    let plan = Plan::of(&target, options.operators == Operators::Always)?;
    let output = output::absolute(&options.output)?;
    output::check(&output, Path::new(&format!("/proc/{pid}/exe")))?;
    let wished = options.session_parent.as_deref().or_else(|| output.parent()).unwrap_or(Path::new("/"));
    let place = SessionPlace::find(&target, wished)?;
    let object = if plan.has_object() { None } else { Some(PlacedObject::unpack(&target, plan.variant)?) };
    let mut session = Session::begin(SessionConfig {
        parent: place.here(),
        output: &output,
        command: target.command.clone(),
        object: object.as_ref().map_or(Path::new(""), |object| &object.unpacked.path),
        sees_operators: plan.variant.sees_operators(),
        begin: options.begin,
        bytes_max: options.bytes_max,
        stack_depth: options.stack_depth,
        clock: options.clock_reads(),
    })?;
    let recorder = Recorder { options, target: &target, plan: &plan, place: &place, object: object.as_ref() };
    match recorder.record(&mut session, &end, show) {
        Ok((attachment, begun, recorded_s)) => {
            let selection = Selection { programs: options.programs.clone(), in_valgrind: false };
            let started = Err(UNOBSERVED.to_string());
            let work = ConversionInputs { merging: Merging::default(), begun, started, selection };
            object.into_iter().for_each(|object| object.unpacked.keep_if_loaded());
            let report = collect(session, None, work)?;
            Ok(RecordReport { attached: Some(attachment), recorded_s: Some(recorded_s), ..report })
        }
        Err(why) => {
            object.into_iter().for_each(|object| object.unpacked.keep_if_loaded());
            session.remove()?;
            Err(why)
        }
    }
}

type Recorded = (Attachment, StartedConversions, f64);

/// What is needed to begin the recording of a process.
struct Recorder<'a> {
    options: &'a Options,
    target: &'a Target,
    plan: &'a Plan<'a>,
    place: &'a SessionPlace,
    /// `None` if the process has the object from an earlier recording.
    object: Option<&'a PlacedObject>,
}

impl Recorder<'_> {
    /// Lets the process record until the end of the recording.
    fn record(
        &self,
        session: &mut Session,
        end: &EndOf,
        show: &mut dyn FnMut(&Progress),
    ) -> Result<Recorded, RecordError> {
        let (options, pid) = (self.options, self.target.pid);
        let refused = |why: &str| RecordError::CannotAttach { pid, why: why.to_string() };
        session.control.limit_to(&options.programs)?;
        session.control.hold()?;
        session.set_root(self.target.inside_pid)?;
        let there = self.place.there(&session.logs_dir).ok_or_else(|| refused("the path of its log is too long"))?;
        let mut threads = SessionThreads::begin(session, options.clock_reads())?;
        let signals = EndingSignals::begin();
        let began = Instant::now();
        let redirection = self.plan.redirect(self.object.map(|object| object.there.as_path()), &there)?;
        let waited = wait_for_call(&redirection, end, &signals, options.duration);
        waited.inspect_err(|_| redirection.cancel()).map_err(|why| refused(&why))?;
        let begun_s = began.elapsed().as_secs_f64();
        threads.convert_early(session, self.target.inside_pid);
        let result = watch(session, options, end, &redirection, &signals, show);
        let restored = has_left(&redirection);
        let begun = threads.end();
        let executed = result?;
        Ok((Attachment { pid, begun_s, restored, executed }, begun, began.elapsed().as_secs_f64() - begun_s))
    }
}

/// Waits until the process has begun to record.
fn wait_for_call(
    redirection: &Redirection<'_>,
    end: &EndOf,
    signals: &EndingSignals,
    duration: Option<Duration>,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match redirection.answer() {
            Some(Answer::Records | Answer::Left) => return Ok(()),
            Some(Answer::Fails(why)) => return Err(why),
            Some(Answer::Waits) => {}
            None => return Err("it ended, or executed another program, before it called an allocator function".into()),
        }
        if let Some(signal) = signals.take() {
            return Err(format!("signal {signal} came before it called an allocator function"));
        }
        if duration.is_some_and(|duration| began.elapsed() >= duration) {
            let seconds = began.elapsed().as_secs_f64();
            return Err(format!("it called no allocator function through its modules in {seconds:.1} s"));
        }
        if end.came_within(BEGIN_INTERVAL_MS).map_err(|why| why.to_string())? {
            return Err("it ended before it called an allocator function".into());
        }
    }
}

/// Watches the process until the recording ends. Returns whether it was seen to execute another program: its memory is gone,
/// and it runs on.
fn watch(
    session: &Session,
    options: &Options,
    end: &EndOf,
    redirection: &Redirection<'_>,
    signals: &EndingSignals,
    show: &mut dyn FnMut(&Progress),
) -> Result<bool, RecordError> {
    let mut watch = Watch::new(session, options.duration);
    let failed = |source| RecordError::Start { command: "the recorded process".into(), source };
    let mut executed = false;
    loop {
        if signals.take().is_some() {
            session.control.end(EndReason::Request)?;
        }
        let is_over = watch.look(show)? == WatchDecision::Detach;
        let has_no_memory = redirection.answer().is_none();
        // A process that ends loses its memory a moment before.
        let wait_ms = if is_over { BEGIN_INTERVAL_MS } else { WATCH_INTERVAL_MS };
        let has_ended = (!is_over || has_no_memory) && end.came_within(wait_ms).map_err(failed)?;
        executed |= has_no_memory && !has_ended;
        if is_over || has_ended {
            return Ok(executed);
        }
    }
}

/// Waits until the process has left the recording; false if it makes no call, and has not.
fn has_left(redirection: &Redirection<'_>) -> bool {
    let began = Instant::now();
    while began.elapsed() < LEAVE_TIMEOUT {
        match redirection.answer() {
            Some(Answer::Left) | None => return true,
            Some(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
    false
}

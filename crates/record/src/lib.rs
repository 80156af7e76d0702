//! Records a program: the implementation of `hksim record`.
//!
//! [`record`] runs a command with the recorder preloaded. Each process image writes an *event log* (`event_log.rs`)
//! into a *session* directory next to the output. When the program has ended, each log is converted to a trace. The
//! program's own trace gets the output's name; traces of other processes go to a directory next to it. If the recorder
//! dies, [`recover`] converts the session later.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "recording supports Linux on x86_64 only: the preloaded object and the reading of its clock are written for it"
);

mod attach;
mod background;
mod batch_merge;
mod buffer_reader;
mod children;
mod clock;
pub mod control;
mod convert;
mod elf;
mod ended;
mod environment;
mod epoch;
mod error;
mod functions;
#[cfg(test)]
mod growing;
mod in_use;
mod log_reader;
mod marks;
#[doc(hidden)]
pub mod measure;
mod merge;
#[cfg(test)]
mod merge_order;
mod missing;
mod object;
mod output;
mod pages;
mod pipeline;
mod plain_calls;
mod process_tree;
mod program;
mod report;
mod run;
mod selection;
mod session;
mod session_threads;
mod signals;
mod sites;
mod stamps;
mod thread_events;
mod timeline;
pub mod touch_full;
mod tournament;
mod traces;
mod watch;
mod window;
mod written_file;

// Files of the preloaded object, compiled a second time, so that writer and reader cannot disagree.
#[path = "../../record-preload/src/attachment.rs"]
mod attachment;
#[doc(hidden)]
#[path = "../../record-preload/src/encoding.rs"]
pub mod encoding;
#[doc(hidden)]
#[path = "../../record-preload/src/event_log.rs"]
pub mod event_log;
#[doc(hidden)]
#[path = "../../record-preload/src/stacks.rs"]
pub mod stacks;
#[doc(hidden)]
#[path = "../../record-preload/src/touched.rs"]
pub mod touched;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use attach::attach_watched;
pub use epoch::ClockReads;
pub use error::RecordError;
pub use functions::{Functions, record_functions};
pub use program::{Obstacle, find as find_program, obstacle};
pub use report::{
    Attachment, DamagedLog, Exit, FunctionCalls, Probed, RecordReport, RecordedTrace, Touches, UnseenImage,
};

use control::Begin;
use object::{Unpacked, Variant};
use pages::Collector;
use process_tree::ProcessTree;
use run::{Host, Running, WatchOutcome};
use selection::Selection;
use session::{Session, SessionConfig};
use session_threads::SessionThreads;
use signals::Interruptible;
use touch_full::{Merging, TouchFull};
use traces::ConversionInputs;
pub use watch::Progress;
use watch::Watch;

/// Whether to interpose C++'s `operator new` and `delete`, which some allocators implement without calling `malloc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operators {
    /// Only if the program to start uses such an allocator.
    #[default]
    Auto,
    /// Always: for programs that are started by another program, such as a shell.
    Always,
}

/// Which of the program's accesses to its blocks are recorded.
#[derive(Clone, Debug, Default)]
pub enum Touch {
    /// None.
    #[default]
    None,
    /// The first touch of each page of sampled objects. Each sampled object is alone on its pages.
    Pages {
        /// Sample one object in this many, and every object of a page or more.
        sample: NonZeroU32,
    },
    /// Every access, as reported by this tool.
    Full(TouchFull),
}

/// Which processes are recorded; by default all.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Names of the programs to record, without directories; empty for all. A name is compared with the program's file
    /// name and with the first word of its command.
    pub only: Vec<String>,
    /// Record only the process that is started, none of its children.
    pub no_children: bool,
}

/// Options of a recording.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Path of the trace; traces of other processes go to a directory next to it.
    pub output: PathBuf,
    /// Parent of the session directory; `None` for the output's directory. A session takes about 8 bytes per event
    /// until it ends.
    pub session_parent: Option<PathBuf>,
    /// When recording begins.
    pub begin: Begin,
    /// Time after which recording ends and the traces are written, even if the program still runs.
    pub duration: Option<Duration>,
    /// Size of the session in bytes at which recording ends in the same way.
    pub bytes_max: Option<u64>,
    /// Frames of each call's stack to record, 1 to [`stacks::DEPTH_MAX`]; `None` for no call sites.
    pub stack_depth: Option<u32>,
    /// Which accesses are recorded.
    pub touch: Touch,
    /// Whether to interpose C++'s operators.
    pub operators: Operators,
    /// Which processes are recorded.
    pub programs: Programs,
    /// How often the clock is read; always at every event if accesses or call sites are recorded.
    pub clock: ClockReads,
}

impl Options {
    /// The effective setting. Accesses are ordered among events by time, so they need exact times. A call site costs
    /// more than reading the clock.
    fn clock_reads(&self) -> ClockReads {
        let is_plain = matches!(self.touch, Touch::None) && self.stack_depth.is_none();
        if is_plain { self.clock } else { ClockReads::Every }
    }
}

/// Runs `command` (program and arguments) and records it.
///
/// The program's standard streams are untouched. Its exit status is in the report and is never an error. While the
/// program runs, SIGHUP, SIGINT, SIGQUIT and SIGTERM sent to the caller are forwarded to the program; before and after,
/// they end this call cleanly. SIGUSR1 sets a mark; SIGUSR2 pauses or resumes recording. The call does not wait for
/// processes that outlive the program. A second call in the same process waits until the first call's program has
/// ended.
///
/// # Errors
/// The program cannot be recorded (see [`RecordError`]), or no event was recorded; [`RecordError::Interrupted`] if a
/// signal came before it started; [`RecordError::Kept`] if it was recorded but not converted.
pub fn record(options: &Options, command: &[OsString]) -> Result<RecordReport, RecordError> {
    record_watched(options, command, &mut |_| {})
}

/// As [`record`]; also calls `show` a few times a second while the program runs and is recorded.
///
/// # Errors
/// As for [`record`].
pub fn record_watched(
    options: &Options,
    command: &[OsString],
    show: &mut dyn FnMut(&Progress),
) -> Result<RecordReport, RecordError> {
    let _interruptible = Interruptible::begin();
    let program = command.first().ok_or(RecordError::NoCommand)?;
    let program = program::find(program)?;
    let recordable = program::check(&program)?;
    let output = output::absolute(&options.output)?;
    let parent = options.session_parent.as_deref().or_else(|| output.parent()).unwrap_or(Path::new("/"));
    output::check(&output, &program)?;
    let sees_operators = options.operators == Operators::Always || recordable.serves_operators;
    let object = object::unpack(if sees_operators { Variant::MallocAndOperators } else { Variant::Malloc })?;
    let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (begin, bytes_max, stack_depth) = (options.begin, options.bytes_max, options.stack_depth);
    let plan = SessionConfig {
        parent,
        output: &output,
        command: words,
        object: &object.path,
        sees_operators,
        begin,
        bytes_max,
        stack_depth,
        clock: options.clock_reads(),
    };
    let mut session = Session::begin(plan)?;
    let began = Instant::now();
    let Started { running, collector, mut threads, tree } = match start(options, command, &object.path, &session) {
        Ok(started) => started,
        Err(why) => {
            session.remove()?;
            return Err(why);
        }
    };
    let root = running.pid();
    // If this fails, only a later recovery lacks the id; this call has it in memory.
    let _ = session.set_root(root);
    let mut watch = Watch::new(&session, options.duration);
    if matches!(options.touch, Touch::None) {
        threads.convert_early(&session, root);
    }
    let outcome = running.watch(|| watch.look(show));
    let begun = threads.end();
    let started = tree.map(|tree| tree.end(root));
    let recorded_s = Some(began.elapsed().as_secs_f64());
    let collected = collector.map_or(Ok(()), Collector::end);
    let outcome = match outcome.and_then(|outcome| collected.map(|()| outcome)) {
        Ok(outcome) => outcome,
        Err(why) => return Err(session.kept(why)),
    };
    let unseen_calls = recordable.unseen_calls;
    let in_valgrind = matches!(options.touch, Touch::Full(_));
    let selection = Selection { programs: options.programs.clone(), in_valgrind };
    let merging = match &options.touch {
        Touch::Full(tool) => tool.merging(),
        Touch::None | Touch::Pages { .. } => Merging::default(),
    };
    finish(session, outcome, object, ConversionInputs { merging, begun, started, selection })
        .map(|report| RecordReport { recorded_s, unseen_calls, ..report })
}

/// A running program and the threads that support its recording.
struct Started {
    running: Running,
    /// Collects page faults, if touches are recorded.
    collector: Option<Collector>,
    threads: SessionThreads,
    /// Finds programs without a log, or why it cannot.
    tree: Result<ProcessTree, String>,
}

/// Starts the supporting threads, then the program.
fn start(options: &Options, command: &[OsString], object: &Path, session: &Session) -> Result<Started, RecordError> {
    session.control.limit_to(&options.programs)?;
    let threads = SessionThreads::begin(session, options.clock_reads())?;
    // Before the collector, which takes what memory it may lock.
    let begin_tree = || ProcessTree::begin().map_err(|why| why.to_string());
    let tree = begin_tree();
    let mut host = Host::default();
    let mut collector = None;
    match &options.touch {
        Touch::None => (),
        Touch::Pages { sample } => {
            collector = Some(Collector::begin(&session.dir)?);
            host.variables.push((touched::SAMPLE_VARIABLE, OsString::from(sample.to_string())));
        }
        Touch::Full(tool) => {
            session.control.number_events()?;
            host = tool.host(&session.logs_dir);
        }
    }
    Ok(Started { running: run::start(command, object, &session.logs_dir, &host)?, collector, threads, tree })
}

/// Writes the traces and waits for the program. If recording ended before the program, the traces are written first.
fn finish(
    session: Session,
    outcome: WatchOutcome,
    object: Unpacked,
    work: ConversionInputs,
) -> Result<RecordReport, RecordError> {
    let report = match outcome {
        WatchOutcome::Ended(exit) => collect(session, Some(exit), work)?,
        WatchOutcome::Runs(running) => {
            let report = collect(session, None, work);
            let exit = running.wait()?;
            RecordReport { exit: Some(exit), ..report? }
        }
    };
    let is_loaded = object.is_loaded().unwrap_or_else(|| report.traces.iter().any(|trace| trace.still_running));
    let left = is_loaded.then(|| object.path.clone());
    if is_loaded {
        object.keep();
    }
    Ok(RecordReport { preload_object_kept: left, ..report })
}

/// The path at which [`recover`] writes the trace of the session in `dir`.
///
/// # Errors
/// There is no session in `dir`.
pub fn recovered_output(dir: &Path) -> Result<PathBuf, RecordError> {
    Ok(Session::open(dir)?.info.output)
}

/// Converts a session whose recorder died. The traces get the paths that the recorder would have used.
///
/// # Errors
/// There is no session in `dir`, or a trace cannot be written; in the latter case the session is kept.
pub fn recover(dir: &Path) -> Result<RecordReport, RecordError> {
    recover_session(Session::open(dir)?)
}

/// As [`recover`], but writes the trace to `output` and other processes' traces next to it: for a session on a full
/// disk.
///
/// # Errors
/// As for [`recover`].
pub fn recover_to(dir: &Path, output: &Path) -> Result<RecordReport, RecordError> {
    let mut session = Session::open(dir)?;
    session.info.output = output::absolute(output)?;
    recover_session(session)
}

fn recover_session(session: Session) -> Result<RecordReport, RecordError> {
    let _interruptible = Interruptible::begin();
    session.remove_ahead();
    let object = session.info.object.clone();
    let started = Err("the recording was recovered, and its recorder would have noticed them".to_string());
    let work = ConversionInputs {
        merging: Merging::default(),
        begun: Default::default(),
        started,
        selection: Selection::default(),
    };
    let report = collect(session, None, work)?;
    let left = object::remove_left_behind(&object).then_some(object);
    Ok(RecordReport { preload_object_kept: left, ..report })
}

/// Writes the traces and removes the session. The session is kept if a trace cannot be written.
fn collect(session: Session, exit: Option<Exit>, work: ConversionInputs) -> Result<RecordReport, RecordError> {
    match traces::write_all(&session, exit, work) {
        Ok(report) if report.traces.is_empty() => {
            let why = match exit {
                Some(Exit::Signal(libc::SIGTRAP)) => touch_full::TRAPPED,
                _ => traces::why_none(&session, &report)?,
            };
            let nothing = RecordError::NothingRecorded { command: shortened(&session.info.command), why, exit };
            match report.damaged.into_iter().next() {
                Some(DamagedLog { path, offset, why }) => Err(session.kept(RecordError::BadLog { path, offset, why })),
                None => session.remove().and(Err(nothing)),
            }
        }
        Ok(report) if !report.damaged.is_empty() => {
            session.remove_ahead();
            Ok(RecordReport { session_kept: Some(session.dir), ..report })
        }
        Ok(report) => {
            session.remove()?;
            Ok(report)
        }
        Err(why) => Err(session.kept(why)),
    }
}

/// The start of a command, because a whole command line may have megabytes.
fn shortened(command: &[String]) -> String {
    const CHARACTERS: usize = 200;
    let whole = command.join(" ");
    match whole.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}...", whole.get(..end).unwrap_or_default()),
        None => whole,
    }
}

//! Records a program from its start to its end.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hksim_memory_trace::{Beginning, Calls, End, Faults, Header, Inherited, ThpDisabled, Visibility};
use libc::pid_t;
use serde::Serialize;

use crate::anonymous_peak::AnonymousPeaks;
use crate::call_log::CallLog;
use crate::clock::monotonic_ns;
use crate::error::MemoryRecordError;
use crate::fault_check::FaultCheck;
use crate::files::{Files, Finished};
use crate::interpreter::Interpreter;
use crate::launch::{Ended, Launch, Running, Streams};
use crate::machine;
use crate::merge::{BACKLOG_BYTES_MAX, Merger};
use crate::session::Session;
use crate::shown_mode::ShownMode;
use crate::signals::Recipient;
use crate::snapshot::{self, Snapshots, SnapshotsOf};
use crate::source::{Events, Source};
use crate::stack_dump;
use crate::thp_guard::ThpGuard;
use crate::tracer::Traced;

/// What is recorded, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// File of the program's recording; those of its children go to a directory next to it.
    pub output: PathBuf,
    /// Switch random addresses off.
    pub fixes_addresses: bool,
    /// Huge pages of the recorded processes.
    pub huge_pages: HugePages,
    /// End the recording after this time; the program continues.
    pub duration: Option<Duration>,
    /// The directory in which the program starts; `None` for that of this process.
    pub directory: Option<PathBuf>,
    /// The THP mode that the program reads in sysfs; `None` for the machine's. Needs root.
    pub shown_thp_mode: Option<String>,
    /// Additional environment variables of the program.
    pub variables: Vec<(OsString, OsString)>,
    /// The program's standard streams.
    pub streams: Streams,
    /// Whose memory is read at the exit.
    pub snapshots_of: SnapshotsOf,
    /// How the program is observed.
    pub source: Source,
    /// Record the call stacks of calls that make mappings or ask for huge pages, up to this number of frames.
    pub stack_depth: Option<u32>,
}

/// Whether recorded processes get huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// No, so that the first touch of each page is seen.
    #[default]
    Off,
    /// As the machine's modes say, with this setting of the process. The recording then shows one fault per huge page;
    /// use it to measure.
    With(ThpDisabled),
}

impl HugePages {
    /// The setting with which the program is started.
    fn setting(self) -> ThpDisabled {
        match self {
            Self::Off => ThpDisabled::All,
            Self::With(setting) => setting,
        }
    }

    /// What programs inherit apart from the recorder, and the guard that gives it back to them if they get another setting
    /// meanwhile.
    fn prepare(self) -> (Inherited, Option<ThpGuard>) {
        let inherited = machine::inherited(self);
        let guard = (self == Self::Off).then(|| ThpGuard::start(inherited.thp_disable)).flatten();
        (inherited, guard)
    }
}

/// One written file.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedFile {
    /// Its path.
    pub path: PathBuf,
    /// The program.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// Number of the address space within the process.
    pub image: u32,
    /// How the address space began.
    pub beginning: Beginning,
    /// How it ended.
    pub end: End,
    /// Events in the file.
    pub events: u64,
}

/// A process that is not recorded.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// The process.
    pub pid: u32,
    /// Why.
    pub why: String,
}

/// The result of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingReport {
    /// The files: the program's own first, then those of its children in order of creation.
    pub files: Vec<RecordedFile>,
    /// Whether the recorder was killed. All that is not in the files is then unknown: losses, and how the program ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_recovered: bool,
    /// Exit code of the program; `None` if a signal ended it, or if it still runs.
    pub exit_code: Option<i32>,
    /// The signal that ended the program.
    pub exit_signal: Option<i32>,
    /// What the recorder could see.
    pub visibility: Visibility,
    /// Events that did not fit into the kernel's rings.
    pub lost_events: u64,
    /// Calls whose stack is incomplete: code without unwind information, or a stack deeper than its recorded part. Absent
    /// if call stacks were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks_incomplete: Option<u64>,
    /// Children of a running program that could not be attached to, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Files of 32-bit programs, whose calls are not understood.
    pub programs_32_bit: Vec<PathBuf>,
    /// Faults that the kernel charged to the program and the children it waited for (`ru_minflt`).
    pub minor_faults: Option<u64>,
    /// Of these faults, those that neither were recorded nor follow from a call that populates memory: a check that needs
    /// no events. `None` where faults in system calls are not recorded, and if the program still runs.
    pub faults_unseen: Option<u64>,
    /// Largest resident set of one of these processes (`ru_maxrss`).
    pub resident_bytes_peak: Option<u64>,
    /// CLOCK_MONOTONIC at the start, from which the times in the files count; `None` if unknown. Not exported.
    #[serde(skip)]
    pub start_ns: Option<u64>,
    /// Run time of the program, in seconds.
    pub elapsed_s: f64,
    /// The memory of the program and of its children at their exit, if asked for. Not exported.
    #[serde(skip)]
    pub snapshots: Snapshots,
    /// With [`Source::Stops`]: the program's processes that still run. Dropping the report waits for their end.
    #[serde(skip)]
    pub traced: Option<Traced>,
}

impl RecordingReport {
    /// Whether the program ran before the recording.
    pub fn began_in_the_middle(&self) -> bool {
        self.files.iter().any(|file| file.beginning.is_attached())
    }
}

/// A moment of a program that is recorded, with its process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starting {
    /// It waits before its exec.
    Waits(pid_t),
    /// It runs.
    Runs(pid_t),
}

/// Runs a program and records it.
///
/// # Errors
/// The program cannot be started, the kernel does not permit its events, or a file cannot be written.
pub fn record(options: &Options, command: &[OsString]) -> Result<RecordingReport, MemoryRecordError> {
    record_with(options, command, |_| {})
}

/// Runs a program and records it, and calls `on` at the moments of its start.
///
/// # Errors
/// As for [`record`].
pub fn record_with(
    options: &Options,
    command: &[OsString],
    mut on: impl FnMut(Starting),
) -> Result<RecordingReport, MemoryRecordError> {
    if options.stack_depth.is_some() && stack_dump::SAMPLED.is_empty() {
        return Err(MemoryRecordError::StacksUnsupported);
    }
    let with_stacks = options.stack_depth.is_some();
    // Before any thread of the recorder starts.
    let (inherited, mut guard) = options.huge_pages.prepare();
    let stopped = launch(options, command)?.start()?;
    guard.iter_mut().for_each(|guard| guard.begins(stopped.pid() as u32));
    let recipient = Recipient::begin(stopped.pid());
    let events = Events::open(options.source, stopped.pid(), with_stacks)?;
    let visibility = events.visibility;
    let start_ns = monotonic_ns();
    let header = header(options, command, inherited, stopped.pid() as u32, start_ns, visibility);
    let log = Arc::new(CallLog::default());
    let mut session = Session {
        interpreter: Interpreter::new(stopped.pid() as u32, header.inherited.thp_disable, options.stack_depth),
        files: Files::create(&options.output, header, start_ns)?,
        merger: Merger::new(events, Arc::clone(&log), BACKLOG_BYTES_MAX),
        guard,
        check: FaultCheck::new(snapshot::minor_faults_of(stopped.pid()).unwrap_or_default()),
        program_end: None,
    };
    // Where the program is stopped at its calls, its memory is read there.
    let has_peaks = options.snapshots_of != SnapshotsOf::Nothing && visibility.calls == Calls::Tracepoints;
    let peaks = has_peaks.then(|| AnonymousPeaks::watch(stopped.pid())).flatten();
    on(Starting::Waits(stopped.pid()));
    let begin = Instant::now();
    let started = match visibility.calls {
        Calls::Tracepoints => stopped.go().map(|running| (running, None)),
        Calls::Stops => stopped.go_traced(&log, with_stacks).map(|(running, traced)| (running, Some(traced))),
    };
    let (ended, traced) = match started {
        Ok((running, traced)) => {
            on(Starting::Runs(running.pid()));
            (watch(&mut session, running, options.duration, command), traced)
        }
        Err(why) => (Err(why), None),
    };
    drop(recipient);
    let elapsed_s = begin.elapsed().as_secs_f64();
    log.close();
    let (status, mut ended) = match ended {
        Ok(ended) => (Ok(ended.as_ref().and_then(Ended::exit_status)), ended),
        Err(why) => (Err(why), None),
    };
    session.complete(status)?;
    add_peaks(ended.as_mut(), peaks);
    let minor_faults = ended.as_ref().map(|ended| ended.minor_faults);
    let sees_all = visibility.faults != Faults::UserOnly;
    let faults_unseen = minor_faults.filter(|_| sees_all).map(|charged| session.check.unseen(charged));
    Ok(RecordingReport {
        exit_code: ended.as_ref().and_then(|ended| ended.status.code()),
        exit_signal: ended.as_ref().and_then(|ended| ended.status.signal()),
        minor_faults,
        faults_unseen,
        resident_bytes_peak: ended.as_ref().map(|ended| ended.resident_bytes_peak),
        snapshots: ended.map(|ended| ended.snapshots).unwrap_or_default(),
        start_ns: Some(start_ns),
        elapsed_s,
        traced,
        ..report(session, visibility, options.stack_depth.is_some())?
    })
}

/// What a completed recording holds, without the program's end, and names its files.
pub(crate) fn report(
    session: Session,
    visibility: Visibility,
    has_stacks: bool,
) -> Result<RecordingReport, MemoryRecordError> {
    let (lost_events, stacks_incomplete) = (session.lost(), session.files.stacks_incomplete);
    let (interpreter, files) = (session.interpreter, session.files.name()?);
    let is_32_bit = |file: &&Finished| interpreter.programs_32_bit.contains(&(file.pid, file.image));
    Ok(RecordingReport {
        is_recovered: false,
        exit_code: None,
        exit_signal: None,
        visibility,
        lost_events,
        stacks_incomplete: has_stacks.then_some(stacks_incomplete),
        left_out: Vec::new(),
        programs_32_bit: files.iter().filter(is_32_bit).map(|file| file.path.clone()).collect(),
        minor_faults: None,
        faults_unseen: None,
        resident_bytes_peak: None,
        start_ns: None,
        elapsed_s: 0.0,
        snapshots: Snapshots::new(),
        traced: None,
        files: files.into_iter().map(recorded_file).collect(),
    })
}

/// Records until the program ends, or until `duration`. `None` if it still runs.
fn watch(
    session: &mut Session,
    running: Running,
    duration: Option<Duration>,
    command: &[OsString],
) -> Result<Option<Ended>, MemoryRecordError> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if !session.watch(|| running.has_ended(), is_late)? {
        return Ok(None);
    }
    let ended = running
        .wait()
        .map_err(|source| MemoryRecordError::Start { command: Path::new(&command[0]).display().to_string(), source });
    ended.map(Some)
}

fn launch(options: &Options, command: &[OsString]) -> Result<Launch, MemoryRecordError> {
    let shown_mode = options.shown_thp_mode.as_deref().map(ShownMode::write).transpose();
    let shown_mode = shown_mode.map_err(MemoryRecordError::system("write the THP mode that the program reads"))?;
    Ok(Launch {
        command: command.to_vec(),
        directory: options.directory.clone(),
        shown_mode: shown_mode.map(Arc::new),
        variables: options.variables.clone(),
        thp_disable: options.huge_pages.setting(),
        fixes_addresses: options.fixes_addresses,
        streams: options.streams.clone(),
        snapshots_of: options.snapshots_of,
    })
}

/// Adds the anonymous memory over time to the snapshots.
fn add_peaks(ended: Option<&mut Ended>, peaks: Option<AnonymousPeaks>) {
    let (Some(ended), Some(mut levels)) = (ended, peaks.and_then(AnonymousPeaks::finish)) else { return };
    for (pid, snapshot) in &mut ended.snapshots {
        if let Some((peak, levels)) = levels.remove(pid) {
            (snapshot.anonymous.peak, snapshot.anonymous_levels) = (Some(peak), levels);
        }
    }
}

pub(crate) fn recorded_file(file: Finished) -> RecordedFile {
    let program = file.command.first().cloned().unwrap_or_default();
    let Finished { path, pid, image, beginning, end, events, .. } = file;
    RecordedFile { path, program, pid, image, beginning, end, events }
}

fn header(
    options: &Options,
    command: &[OsString],
    inherited: Inherited,
    pid: u32,
    start_ns: u64,
    visibility: Visibility,
) -> Header {
    let has_random_addresses = !options.fixes_addresses && !machine::has_fixed_addresses(inherited.personality);
    let mut machine = machine::machine(has_random_addresses, options.huge_pages == HugePages::Off);
    machine.thp_mode = options.shown_thp_mode.clone().or(machine.thp_mode);
    let directory = options.directory.clone().or_else(|| std::env::current_dir().ok());
    let mut environment = machine::environment();
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    environment.extend(options.variables.iter().map(|(name, value)| (text(name), text(value))));
    Header {
        producer: concat!("hksim ", env!("CARGO_PKG_VERSION")).to_string(),
        run_id: format!("{start_ns:x}-{pid}"),
        command: command.iter().map(text).collect(),
        input: match &options.streams {
            Streams::Job { input, .. } => Some(input.clone()),
            Streams::Inherited | Streams::Silent { .. } => None,
        },
        directory: directory.map(|path| path.display().to_string()),
        environment,
        pid,
        image: 0,
        beginning: Beginning::Exec,
        visibility,
        machine,
        inherited,
        stack_depth: options.stack_depth,
        history: Vec::new(),
    }
}

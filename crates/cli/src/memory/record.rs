//! `hksim record --memory`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use hksim_linux_probe::signal_handlers::EndingSignals;
pub use hksim_memory_record::is_interrupted;
use hksim_memory_record::{
    self as memory_record, AttachOptions, HugePages, HugePagesOfRunning, Options, RecordedFile, RecordingReport,
    SignalsToProgram, SnapshotsOf, Source, Streams, Traced, attach, record,
};
use hksim_memory_trace::{Beginning, Calls, End, Faults};
use serde::Serialize;

use crate::output::{Format, file, note, plain, print_beside_program, render, units, warn};
use hksim_replay::ReplaySpec;
use hksim_results::Stamp;
use hksim_validate::memory::replayed::record_replay;

/// Maximum number of children listed.
const CHILDREN_SHOWN: usize = 20;

/// What to record.
pub struct Request<'a> {
    /// File of the program's recording.
    pub output: &'a Path,
    /// Which program.
    pub subject: Subject<'a>,
    /// End the recording after this time.
    pub duration: Option<Duration>,
    /// Record the call stacks of calls that make mappings or ask for huge pages, up to this number of frames.
    pub stack_depth: Option<u32>,
    /// Format of the report.
    pub format: Format,
}

/// The program that is recorded.
pub enum Subject<'a> {
    /// It is started.
    Program {
        /// The command and its arguments.
        command: &'a [OsString],
        /// Switch random addresses off.
        no_aslr: bool,
    },
    /// It runs already.
    Running {
        /// The process.
        pid: u32,
        /// Switch huge pages off for it.
        no_huge_pages: bool,
    },
}

/// The report, with the stamp of every JSON result.
#[derive(Serialize)]
struct StampedReport<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    #[serde(flatten)]
    report: &'a RecordingReport,
}

/// Records the page operations of a program and its children.
///
/// # Errors
/// The program cannot be recorded.
pub fn run(request: &Request<'_>) -> Result<()> {
    let output = request.output;
    match fs::metadata(output) {
        Ok(metadata) if metadata.is_dir() => {
            bail!("{}: is a directory; name a file for the recording", output.display())
        }
        Ok(metadata) if !metadata.is_file() => {
            bail!("{}: is a device or a pipe; name a file for the recording", output.display())
        }
        _ => file::check_trace(output)?,
    }
    let earlier = file::set_aside(output)?;
    let report = match request.subject {
        Subject::Program { command, no_aslr } => start(request, command, no_aslr)?,
        Subject::Running { pid, no_huge_pages } => attach_to(request, pid, no_huge_pages)?,
    };
    file::keep_earlier(earlier, request.format);
    print(&report, request.format)?;
    if report.traced.as_ref().is_some_and(Traced::is_running) {
        warn("processes of the program still run; hksim stays until they end, since they end with it");
    }
    Ok(())
}

/// Records a program that runs already, until it ends or a signal ends the recording.
fn attach_to(request: &Request<'_>, pid: u32, no_huge_pages: bool) -> Result<RecordingReport> {
    let options = AttachOptions {
        output: request.output.to_path_buf(),
        duration: request.duration,
        huge_pages: if no_huge_pages { HugePagesOfRunning::SwitchedOff } else { HugePagesOfRunning::Unchanged },
        stack_depth: request.stack_depth,
    };
    let signals = EndingSignals::begin();
    let line = || note(&format!("recording process {pid}; Ctrl-C ends the recording, and the process continues"));
    Ok(attach(&options, pid, line, || signals.came())?)
}

/// Starts a program and records it to its end.
fn start(request: &Request<'_>, command: &[OsString], no_aslr: bool) -> Result<RecordingReport> {
    let options = Options {
        output: request.output.to_path_buf(),
        fixes_addresses: no_aslr,
        huge_pages: HugePages::Off,
        duration: request.duration,
        directory: None,
        shown_thp_mode: None,
        variables: Vec::new(),
        streams: Streams::Inherited,
        snapshots_of: SnapshotsOf::Nothing,
        source: Source::Auto,
        stack_depth: request.stack_depth,
    };
    let _signals = SignalsToProgram::begin();
    Ok(record(&options, command)?)
}

/// Names the files of an interrupted recording.
///
/// # Errors
/// The directory has no such recording of this user, or a file cannot be moved.
pub fn recover(directory: &Path, output: Option<&Path>, format: Format) -> Result<()> {
    output.map_or(Ok(()), file::check_trace)?;
    print(&memory_record::recover(directory, output)?, format)
}

/// Prints a report on standard error.
///
/// # Errors
/// The report cannot be represented in the format.
pub fn print(report: &RecordingReport, format: Format) -> Result<()> {
    let stamped = StampedReport { stamp: Stamp::here(), report };
    let text = render(format, &stamped, &report.files, || summary(report))?;
    match format {
        Format::Table => text.lines().for_each(note),
        Format::Json | Format::Csv => print_beside_program(&text),
    }
    Ok(())
}

fn summary(report: &RecordingReport) -> String {
    let mut text = String::new();
    match (report.exit_code, report.exit_signal) {
        (Some(0), _) => {}
        (Some(code), _) => text += &format!("the program exited with {code}\n"),
        (None, Some(signal)) => text += &format!("signal {signal} ended the program\n"),
        (None, None) if report.is_recovered => {
            text += "the recorder was killed, so the last events are missing, and losses are not counted\n"
        }
        (None, None) if report.began_in_the_middle() => text += &attached(report),
        (None, None) => text += "the recording ended at --duration, before the program\n",
    }
    if let Some((own, children)) = report.files.split_first() {
        text += &line(own);
        for child in children.iter().take(CHILDREN_SHOWN) {
            text += &line(child);
        }
        if children.len() > CHILDREN_SHOWN {
            text += &format!("and {} more next to them\n", units::count((children.len() - CHILDREN_SHOWN) as u64));
        }
    }
    text += missing(report.visibility.faults);
    if report.visibility.calls == Calls::Stops {
        text += "the program was stopped at each memory call, so its run time is not representative\n";
    }
    for file in report.files.iter().filter(|file| is_unreadable(report, file)) {
        let path = file.path.to_string_lossy();
        text +=
            &format!("{}: nothing was recorded: only root may observe a program that you cannot read\n", plain(&path));
    }
    for path in &report.programs_32_bit {
        text += &format!("{}: a 32-bit program; its memory calls are not understood, do not use it\n", path.display());
    }
    if let Some(incomplete) = report.stacks_incomplete.filter(|&incomplete| incomplete > 0) {
        text += &format!("{} incomplete; `hksim info` says why\n", units::of(incomplete, "call stack"));
    }
    text.extend(unseen(report));
    if report.lost_events > 0 {
        text += &format!(
            "{} events were LOST because the machine was too busy; figures will be too small, record again\n",
            units::count(report.lost_events)
        );
        if report.visibility.calls == Calls::Stops {
            text += "kernel.perf_event_mlock_kb and `ulimit -l` limit the buffers for events of ordinary users\n";
        }
    }
    text
}

/// What a recording of a running process began with, and how it ended.
fn attached(report: &RecordingReport) -> String {
    let stops = report.files.iter().filter_map(|file| match file.beginning {
        Beginning::Attached { stopped_ns, .. } => Some(stopped_ns),
        Beginning::Exec | Beginning::Fork { .. } => None,
    });
    let stops: Vec<u64> = stops.collect();
    let processes = if stops.len() == 1 { "1 process".to_string() } else { format!("{} processes", stops.len()) };
    let longest = units::time(stops.iter().copied().max().unwrap_or_default());
    let end = match report.files.first().map(|file| file.end) {
        Some(End::Running) | None => "runs on",
        Some(End::Exit) => "has ended",
        Some(End::Exec) => "has executed another program",
    };
    let mut text = format!("{processes} attached, stopped for up to {longest}; the process {end}\n");
    for left in &report.left_out {
        text += &format!("process {}, a child, is not recorded: {}\n", left.pid, plain(&left.why));
    }
    text
}

/// Faults without an event, if no loss explains them.
fn unseen(report: &RecordingReport) -> Option<String> {
    let unseen = report.faults_unseen.filter(|&unseen| unseen > 0 && report.lost_events == 0)?;
    Some(format!(
        "the kernel charged {} more than were recorded: system calls touched memory without an exception (direct I/O), or \
         events are missing\n",
        units::of(unseen, "page fault")
    ))
}

/// Whether a program could not be observed. Exec itself makes mappings, so that other recordings have events.
fn is_unreadable(report: &RecordingReport, file: &RecordedFile) -> bool {
    report.visibility.calls == Calls::Stops && file.beginning == Beginning::Exec && file.events == 0
}

/// What a recording without tracepoints lacks.
fn missing(faults: Faults) -> &'static str {
    match faults {
        Faults::Accesses => "",
        Faults::All => "recorded without tracepoints, which need root: reads count as writes\n",
        Faults::UserOnly => {
            "recorded without tracepoints, which need root: faults inside system calls are missing, and reads count \
             as writes\n"
        }
    }
}

fn line(file: &RecordedFile) -> String {
    let forked = match file.beginning {
        Beginning::Exec => "",
        Beginning::Fork { .. } => ", forked",
        Beginning::Attached { .. } => ", from the middle on",
    };
    let path = file.path.to_string_lossy();
    format!("{}: {}, {}{forked}\n", plain(&path), plain(&file.program), units::of(file.events, "event"))
}

/// Records a replay, and prints a report.
///
/// # Errors
/// The replay fails or cannot be recorded.
pub fn replay_and_report(spec: &ReplaySpec, path: &Path, format: Format) -> Result<()> {
    if path.is_dir() {
        bail!("{}: is a directory; name a file for the recording", path.display());
    }
    print(&record_replay(spec, path, None)?.report, format)
}

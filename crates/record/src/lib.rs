//! Recording a program: what runs in `hksim record`.
//!
//! [`record`] runs a command with the recorder preloaded. Each process image leaves a *spool* (`spool.rs`) in a *session*
//! directory beside the output; when the program has ended, each spool becomes a trace: that of the program itself
//! under the output's name, those of other processes beside it. Nothing is converted while the program
//! runs, and a session is complete without its recorder: [`recover`] turns it into traces later.

mod clock;
mod convert;
mod error;
mod lane_events;
mod merge;
mod object;
mod program;
mod report;
mod run;
mod session;
mod spool_reader;
mod traces;

// The recorder's own files, compiled a second time, so that writer and reader cannot disagree.
#[doc(hidden)]
#[path = "../../record-preload/src/encoding.rs"]
pub mod encoding;
#[doc(hidden)]
#[path = "../../record-preload/src/spool.rs"]
pub mod spool;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

pub use error::RecordError;
pub use report::{Exit, RecordReport, RecordedTrace};

use session::Session;

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the trace goes; traces of other processes go beside it.
    pub output: PathBuf,
    /// Where the session directory goes, `None` for the output's directory. It takes 8 bytes per event until the end.
    pub session_parent: Option<PathBuf>,
}

/// Runs `command` (program and arguments) and records it.
///
/// The program's standard streams are untouched; its exit status is in the report, and never an error. SIGHUP, SIGINT,
/// SIGQUIT and SIGTERM sent to the caller while the program runs are passed on to it. Processes that the program
/// leaves behind are not waited for. A second call in the same process waits until the first one's program has ended.
///
/// # Errors
/// The program cannot be recorded (see [`RecordError`]), or nothing was; [`RecordError::Kept`] if it was recorded but
/// not converted.
pub fn record(options: &Options, command: &[OsString]) -> Result<RecordReport, RecordError> {
    let program = command.first().ok_or(RecordError::NoCommand)?;
    program::check(&program::find(program)?)?;
    let output = absolute_output(&options.output)?;
    let parent = options.session_parent.as_deref().or_else(|| output.parent()).unwrap_or(Path::new("/"));
    check_writable(&output)?;
    let object = object::unpack()?;
    let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut session = Session::begin(parent, &output, words, &object.path)?;
    let running = match run::start(command, &object.path, &session.dir) {
        Ok(running) => running,
        Err(why) => {
            session.remove()?;
            return Err(why);
        }
    };
    // Should this fail, only a recovery would miss it; this call has it in memory.
    let _ = session.set_root(running.pid());
    let exit = match running.wait() {
        Ok(exit) => exit,
        Err(why) => return Err(RecordError::Kept { session: session.dir, why: Box::new(why) }),
    };
    let report = collect(session, Some(exit))?;
    if report.object_left.is_some() {
        object.keep();
    }
    Ok(report)
}

/// Turns a session that lost its recorder into traces, where its recorder would have written them.
///
/// # Errors
/// There is no session in `dir`, or a trace cannot be written; the session is then kept.
pub fn recover(dir: &Path) -> Result<RecordReport, RecordError> {
    let session = Session::open(dir)?;
    let object = session.info.object.clone();
    let report = collect(session, None)?;
    if report.object_left.is_none() {
        object::remove_left_behind(&object);
    }
    Ok(report)
}

/// Writes the traces and removes the session; keeps it if a trace cannot be written.
fn collect(session: Session, exit: Option<Exit>) -> Result<RecordReport, RecordError> {
    match traces::write_all(&session, exit) {
        Ok(report) if report.traces.is_empty() => {
            let why = traces::why_none(&session, &report)?;
            let command = session.info.command.join(" ");
            session.remove()?;
            Err(RecordError::NothingRecorded { command, why })
        }
        Ok(report) => {
            session.remove()?;
            Ok(report)
        }
        Err(why) => Err(RecordError::Kept { session: session.dir, why: Box::new(why) }),
    }
}

/// Refuses before the run what could not be written after it.
fn check_writable(output: &Path) -> Result<(), RecordError> {
    let dir = output.parent().unwrap_or(Path::new("/"));
    tempfile::tempfile_in(dir).map(drop).map_err(RecordError::io(output, "create the trace here"))
}

/// The output as an absolute path.
fn absolute_output(output: &Path) -> Result<PathBuf, RecordError> {
    let path = std::path::absolute(output).map_err(RecordError::io(output, "create the trace here"))?;
    let taken = fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file());
    if taken || path.file_name().is_none() {
        return Err(RecordError::OutputIsNoFile { path: output.to_path_buf() });
    }
    Ok(path)
}

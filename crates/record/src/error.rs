//! The reasons why a program cannot be recorded. Each message also says what to do.

use std::io;
use std::path::{Path, PathBuf};

use hksim_trace::error::TraceError;

use crate::report::Exit;

/// Errors of a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The command is empty.
    #[error("no command to record; put it after `--`")]
    NoCommand,
    /// The program does not exist.
    #[error("{command}: command not found; give a path, or a name in PATH")]
    NotFound {
        /// The first word of the command.
        command: String,
    },
    /// The file cannot be run.
    #[error("{}: not an executable program; check its mode and type", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The program has no dynamic linker, so nothing can be preloaded.
    #[error("{}: statically linked, so the recorder cannot be loaded into it; link it dynamically to record it", path.display())]
    Static {
        /// The program.
        path: PathBuf,
    },
    /// The script's interpreter does not exist.
    #[error("{}: its interpreter {} does not exist; correct its first line", path.display(), interpreter.display())]
    BadInterpreter {
        /// The script.
        path: PathBuf,
        /// The interpreter it names.
        interpreter: PathBuf,
    },
    /// The executable defines `malloc`, which takes precedence over a preloaded one.
    #[error(
        "{}: defines malloc itself, so the recorder's is never called; build it without its allocator, or record it under \
         valgrind, whose trace `hksim import` reads",
        path.display()
    )]
    OwnMalloc {
        /// The program.
        path: PathBuf,
    },
    /// The program is built with a sanitizer, whose runtime has an allocator of its own.
    #[error(
        "{}: is built with {sanitizer}, which replaces malloc itself; build it without that -fsanitize option to record it",
        path.display()
    )]
    Sanitized {
        /// The program.
        path: PathBuf,
        /// The sanitizer's name.
        sanitizer: &'static str,
    },
    /// The program is for another architecture than the recorder.
    #[error("{}: not a 64-bit x86 program; the recorder can be loaded into those only", path.display())]
    OtherArchitecture {
        /// The program.
        path: PathBuf,
    },
    /// The program uses a C library other than glibc.
    #[error("{}: loaded by {loader}, not by glibc's dynamic linker; record a build against glibc", path.display())]
    OtherLibc {
        /// The program.
        path: PathBuf,
        /// Its dynamic linker.
        loader: String,
    },
    /// The dynamic linker ignores the preload for such programs.
    #[error("{}: {why}, and the dynamic linker preloads nothing into such a program; record a copy without it", path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// What gives it privileges.
        why: &'static str,
    },
    /// No trace can be written to the output: it would replace a directory, a device, a pipe or the program.
    #[error("{}: {why}", path.display())]
    BadOutput {
        /// The output.
        path: PathBuf,
        /// The reason, and what to do.
        why: &'static str,
    },
    /// A file operation failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "create the trace here", "read".
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The preloaded object cannot be unpacked anywhere.
    #[error(
        "no directory for the preloaded object: {tried} cannot be written or do not allow execution; set TMPDIR to a directory that allows both"
    )]
    NoPlaceForObject {
        /// The directories tried.
        tried: String,
    },
    /// Recording every access needs valgrind, which is not installed.
    #[error("recording every access needs valgrind, which is not installed; apt install valgrind")]
    NoValgrind,
    /// valgrind is installed, but neither hksim's tool nor lackey can run in it.
    #[error("valgrind has no {}; reinstall it completely (apt install --reinstall valgrind)", tool.display())]
    NoLackey {
        /// The file looked for.
        tool: PathBuf,
    },
    /// The system refused to start the program.
    #[error("{command}: cannot start: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program ran, but no event was recorded.
    #[error("{command}: nothing was recorded{}: {why}", ended_by(*exit))]
    NothingRecorded {
        /// The command.
        command: String,
        /// The likely reason, and what to do.
        why: &'static str,
        /// How the program ended, if that is known.
        exit: Option<Exit>,
    },
    /// There is no such process.
    #[error(
        "process {pid}: there is no such process; give the process id of a program that hksim record or hksim trial started"
    )]
    NoProcess {
        /// Its process id.
        pid: u32,
    },
    /// The process is not being recorded.
    #[error(
        "process {pid}: not being recorded; give the process id of a program that hksim record or hksim trial started"
    )]
    NotRecorded {
        /// Its process id.
        pid: u32,
    },
    /// The running process cannot be recorded.
    #[error("process {pid}: cannot be recorded: {why}")]
    CannotAttach {
        /// Its process id.
        pid: u32,
        /// The reason, and what to do.
        why: String,
    },
    /// The names of the programs to record take too many bytes.
    #[error("the names of the programs to record take {bytes} bytes, but at most {max} fit; name fewer programs", max = crate::event_log::ONLY_BYTES)]
    TooManyNames {
        /// Bytes of the names, plus one for each.
        bytes: usize,
    },
    /// A mark's name is empty or too long.
    #[error("a mark's name must have 1 to {max} bytes; this one has {bytes}", max = crate::control::MARK_BYTES_MAX)]
    BadMark {
        /// Bytes of the name.
        bytes: usize,
    },
    /// A session directory contains no recording.
    #[error("{}: not a recording session: {why}", path.display())]
    BadSession {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A log is damaged.
    #[error("{}: damaged at byte {offset}: {why}", path.display())]
    BadLog {
        /// The log.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A signal came before the program had started, or after it had ended.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// The program was recorded, but the recording could not be converted.
    #[error(
        "{why}; the recording is kept: `hksim record --recover {}` writes its traces (with -o: to another place)",
        session.display()
    )]
    Kept {
        /// The session directory, for [`crate::recover`].
        session: PathBuf,
        /// What went wrong.
        #[source]
        why: Box<RecordError>,
    },
}

/// How the program ended, if that may explain why nothing was recorded.
fn ended_by(exit: Option<Exit>) -> String {
    match exit {
        Some(Exit::Signal(signal)) => format!(" (signal {signal} ended the program)"),
        Some(Exit::Code(code @ 1..)) => format!(" (the program exited with {code})"),
        Some(Exit::Code(_)) | None => String::new(),
    }
}

impl RecordError {
    /// The signal that ended the work, if one did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        match self {
            Self::Interrupted { signal } => Some(*signal),
            Self::Kept { why, .. } => why.signal(),
            _ => None,
        }
    }

    /// A function that wraps an I/O error of `path`.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, action, source }
    }
}

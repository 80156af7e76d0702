//! Errors of this crate. Each message names the file or parameter, what is wrong, and what to do.

use crate::event::{ObjectId, ThreadId};
use crate::header::Summary;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be read, written, generated or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed, as a verb: "read", "write".
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The path is not a regular file (a directory, a pipe, a device).
    #[error("{}: not a regular file; traces are read twice, so save a pipe to a file first", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file does not begin as an `.hkt` trace.
    #[error("{}: not an .hkt trace ({why}); for a trace of another program use `hksim import`", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        why: &'static str,
    },
    /// The file is a memory recording, which holds page operations instead of allocator calls.
    #[error("{}: this is a memory recording (.hkm), but a trace of allocator calls (.hkt) is needed; commands for memory \
             recordings are info, sim, sweep, validate, and trace verify, cut and anonymise", path.display())]
    MemoryRecording {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer hksim.
    #[error("{}: trace format version {found}, but this hksim reads versions up to {known}; use a newer hksim", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this build reads.
        known: u32,
    },
    /// The file header does not parse, or its checksum is wrong.
    #[error("{}: damaged file header: {why}; no event can be recovered, use another copy", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Stored bytes are damaged, and the trace continues after the damage.
    #[error("{}: damaged at byte {offset} (chunk {chunk}): {why}; use another copy, or keep the {events_before} events \
             before it: hksim trace verify --repair part.hkt damaged.hkt", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// First byte of the damaged part.
        offset: u64,
        /// Number of the damaged chunk, from 0.
        chunk: u64,
        /// Events in the undamaged chunks before it.
        events_before: u64,
        /// What is wrong.
        why: String,
    },
    /// An event names an object that is not live.
    #[error("{}: event {event} uses object {}, which is not live; the producer of this trace is at fault", path.display(), object.0)]
    DeadObject {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// The object.
        object: ObjectId,
    },
    /// An allocation has an id that is not the recycler's next one.
    #[error("{}: event {event} allocates object {}, but the next id is {}; take ids from ObjectIds", path.display(), object.0, expected.0)]
    WrongObject {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// The id given.
        object: ObjectId,
        /// The id that [`crate::ids::ObjectIds`] returns.
        expected: ObjectId,
    },
    /// The time decreases.
    #[error("{}: event {event} is at {time_ns} ns, but the previous event is at {previous_ns} ns; sort the events by time", path.display())]
    TimeDecreases {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// Its time.
        time_ns: u64,
        /// The time of the previous event.
        previous_ns: u64,
    },
    /// A thread id is too large: threads are numbered in order of first appearance, without gaps.
    #[error("{}: event {event} is of thread {}, but only {threads} threads have appeared; number threads in order of first appearance",
            path.display(), thread.0)]
    SparseThread {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// The id given.
        thread: ThreadId,
        /// Number of threads that appeared before.
        threads: u32,
    },
    /// An event has a value that no program can produce.
    #[error("{}: event {event}: {why}; the producer of this trace is at fault", path.display())]
    BadEvent {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// More objects are live at the same time than ids exist.
    #[error("more than 4294967295 objects are live at the same time; a trace cannot represent them")]
    TooManyObjects,
    /// A JSON part is larger than the format allows.
    #[error("{}: the {part} takes {bytes} bytes as JSON, above the {limit_bytes} the format allows; shorten it", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Which part.
        part: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: u32,
    },
    /// An imported file cannot be read beyond a certain place.
    #[error("{file}{place}: {why}; {remedy}")]
    Import {
        /// The file; for an archive, followed by `!` and the member.
        file: String,
        /// The line, or the byte.
        place: Place,
        /// What is wrong.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// No known format matches a file's first line.
    #[error(
        "{}: unknown trace format; known formats: {known}. Name the format with --from if the first line is damaged, or convert the \
         file to a table with the columns op,object,size (docs/reference/import.md)",
        path.display()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The names of the known formats.
        known: String,
    },
    /// The file was written by another tool and contains no calls to import.
    #[error("{}: this is {kind}: {remedy}", path.display())]
    HoldsNoEvents {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The imported file has no allocator call.
    #[error("{}: no allocator call in it, read as {format}{notes}; name another format with --from, or record the calls as docs/reference/import.md says", path.display())]
    NoCall {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// What else was noticed, each with a colon before it.
        notes: String,
    },
    /// The imported trace would differ much from what the program did.
    #[error("{}: {why}; record it as docs/reference/import.md says, or import it nevertheless with --force", path.display())]
    Doubtful {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// An import's output is its input.
    #[error("{}: this file is both input and output; write to another file", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// The imported file has no calls of the selected process.
    #[error("no calls of process {pid}; {}", if known.is_empty() {
        "the file names no processes: omit --pid".to_string()
    } else {
        format!("the file's processes: {known}")
    })]
    NoProcess {
        /// The selected process.
        pid: u64,
        /// The processes of the file.
        known: String,
    },
    /// A cut kept nothing.
    #[error("{}: this part has no event and no live object; the trace has {} event{}, {} thread{} (from 0) and ends at {} ns",
            path.display(), summary.events, if summary.events == 1 { "" } else { "s" },
            summary.threads, if summary.threads == 1 { "" } else { "s" }, summary.duration_ns)]
    EmptyPart {
        /// The file.
        path: PathBuf,
        /// The size of the whole trace.
        summary: Summary,
    },
    /// No mark has this name.
    #[error("no mark is named {name:?}; {}", if known.is_empty() { "the trace has no marks".to_string() } else { format!("the trace's marks are: {known}") })]
    NoMark {
        /// The requested name.
        name: String,
        /// The names of the trace's marks.
        known: String,
    },
    /// A generator's parameter is out of range.
    #[error("{workload}: {parameter} = {value}: {remedy}")]
    BadParameter {
        /// The generator.
        workload: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: u64,
        /// Which values are valid.
        remedy: &'static str,
    },
}

/// A place in an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line number, from 1.
    Line(u64),
    /// A byte offset, after decompression.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(to, ":{line}"),
            Place::Byte(byte) => write!(to, ": at byte {byte}"),
        }
    }
}

impl TraceError {
    /// A [`TraceError::Io`] for `path`.
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        TraceError::Io { path: path.to_path_buf(), action, source }
    }
}

//! Everything that can go wrong with a trace, each error naming the place and the mend.

use crate::event::{ObjectId, ThreadId};
use crate::header::Summary;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be read, written, generated or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb phrase: "read", "write".
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The path is not a regular file (a directory, a pipe, a device).
    #[error("{}: not a regular file; traces are read twice, so save a pipe to a file first", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file does not begin like an `.hkt` trace.
    #[error("{}: not an .hkt trace ({why}); for a trace of another program use `hksim import`", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What was found instead.
        why: &'static str,
    },
    /// The file was written by a newer hksim.
    #[error("{}: trace format version {found}, but this hksim knows versions up to {known}; use a newer hksim", path.display())]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// The file header does not parse, or its checksum is wrong.
    #[error("{}: damaged file header: {why}; nothing can be kept, take another copy", path.display())]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Stored bytes are damaged, with more of the trace behind them.
    #[error("{}: damaged at byte {offset} (chunk {chunk}): {why}; take another copy, or keep the {events_before} events \
             before it: hksim trace verify --repair part.hkt damaged.hkt", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// First byte of the damaged part.
        offset: u64,
        /// Number of the damaged chunk, from 0.
        chunk: u64,
        /// Events in the whole chunks before it.
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
    /// An allocation was given an id that is not the next one of the recycler.
    #[error("{}: event {event} allocates object {}, but the next id is {}; take ids from ObjectIds", path.display(), object.0, expected.0)]
    WrongObject {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// The id given.
        object: ObjectId,
        /// The id that [`crate::ids::ObjectIds`] hands out.
        expected: ObjectId,
    },
    /// Time ran backwards.
    #[error("{}: event {event} is at {time_ns} ns, before its predecessor at {previous_ns} ns; sort the events by time", path.display())]
    TimeDecreases {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// Its time.
        time_ns: u64,
        /// The time before it.
        previous_ns: u64,
    },
    /// A thread id skips one: threads are numbered in order of first appearance.
    #[error("{}: event {event} is of thread {}, but only {threads} threads have appeared; number threads in order of first appearance",
            path.display(), thread.0)]
    SparseThread {
        /// The file.
        path: PathBuf,
        /// Number of the event, from 0.
        event: u64,
        /// The id given.
        thread: ThreadId,
        /// Threads seen before.
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
    /// More objects are live at once than ids exist.
    #[error("more than 4294967295 objects are live at once; a trace cannot hold that many")]
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
    /// A place of an imported file cannot be understood.
    #[error("{file}{place}: {why}; {mend}")]
    Import {
        /// The file; of an archive, with the member behind a `!`.
        file: String,
        /// The line, or the byte.
        place: Place,
        /// What is wrong.
        why: String,
        /// What to do.
        mend: &'static str,
    },
    /// No known format fits a file's first line.
    #[error(
        "{}: no known trace format; known are {known}: name it with --from if the first line is damaged, or write a table with the \
         columns op,object,size (docs/reference/import.md)",
        path.display()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The formats.
        known: String,
    },
    /// The file belongs to another tool, and holds no calls that could be imported.
    #[error("{}: this is {kind}: {mend}", path.display())]
    HoldsNoEvents {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
        /// What to do instead.
        mend: &'static str,
    },
    /// An import's output is its input.
    #[error("{}: is both input and output; write to another file", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
    },
    /// The process asked for made no call of an imported file.
    #[error("no call is said to be of process {pid}; {}", if known.is_empty() {
        "the file names no processes: leave --pid out".to_string()
    } else {
        format!("processes are {known}")
    })]
    NoProcess {
        /// The process.
        pid: u64,
        /// Those that are there.
        known: String,
    },
    /// A cut kept nothing.
    #[error("{}: no event lies in this part, and no object is live in it; the trace has {} event{}, {} thread{} (from 0) and ends at {} ns",
            path.display(), summary.events, if summary.events == 1 { "" } else { "s" },
            summary.threads, if summary.threads == 1 { "" } else { "s" }, summary.duration_ns)]
    EmptyPart {
        /// The file.
        path: PathBuf,
        /// The whole trace.
        summary: Summary,
    },
    /// No mark has that name.
    #[error("no mark is called {name:?}; {}", if known.is_empty() { "the trace has no marks".to_string() } else { format!("the trace's marks are: {known}") })]
    NoMark {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A generator's parameter is out of range.
    #[error("{workload}: {parameter} = {value}: {mend}")]
    BadParameter {
        /// The generator.
        workload: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        mend: &'static str,
    },
}

/// A place in an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Number of a line, from 1.
    Line(u64),
    /// Number of bytes before it, after decompression.
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
    /// An [`TraceError::Io`] for `path`.
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        TraceError::Io { path: path.to_path_buf(), action, source }
    }
}

//! The report of a recording.

use std::path::PathBuf;

use hksim_trace::event::Access;
use hksim_trace::header::Quality;
use hksim_trace::result_names::QualityNames;
use serde::Serialize;

use crate::control::EndReason;

/// How the recorded program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// The program exited with this status.
    Code(i32),
    /// This signal ended the program.
    Signal(i32),
}

impl Exit {
    /// The status that a shell reports: 128 plus the number for signals.
    #[must_use]
    pub const fn shell_status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A recording: one trace per process image.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecordReport {
    /// How the program ended; `None` for a session recovered without its recorder.
    pub exit: Option<Exit>,
    /// The traces written. The program's own trace is first and has the output's name. Traces of other processes
    /// follow, in the order in which the processes began. Processes without events have no trace.
    pub traces: Vec<RecordedTrace>,
    /// Processes that created a log but could not write to it (no disk space).
    pub unrecorded_pids: Vec<u32>,
    /// Number of processes that could not be recorded. It includes processes that could not create a log, such as
    /// another user's.
    pub unrecorded_processes: u32,
    /// Damaged logs. Their processes have no trace, and the session is kept.
    pub damaged: Vec<DamagedLog>,
    /// Number of programs that the options of the recording excluded. A process counts at its start and at each exec.
    pub excluded_processes: u32,
    /// Number of processes that installed a system-call filter. Programs that they execute afterwards are not recorded.
    /// Their forked children are not recorded either, if the filter forbids creating files.
    pub seccomp_processes: u32,
    /// Programs that were executed without the recorder: static or set-user-ID programs, those that got another
    /// environment, and those that ended before the recorder was loaded. Empty if `unobserved` has a reason.
    pub unseen_programs: Vec<UnseenImage>,
    /// Processes that still ran when the recording ended, other than the program itself.
    pub outliving: Vec<UnseenImage>,
    /// Why the kernel did not report programs and processes; `None` if it did.
    pub unobserved: Option<String>,
    /// Images whose executable defines `malloc` itself, so that none of their calls was recorded.
    pub static_malloc: Vec<UnseenImage>,
    /// Images whose allocator may have served C++'s operators without a record (see [`crate::Operators`]).
    pub unseen_operators: Vec<UnseenImage>,
    /// Functions specific to one allocator that the program calls or contains and that the recorder does not interpose;
    /// empty for a recovered session.
    pub unseen_calls: Vec<&'static str>,
    /// Why the recording ended before the program; `None` if it did not.
    pub end_reason: Option<EndReason>,
    /// The process to which the recorder attached; `None` if it started the program.
    pub attached: Option<Attachment>,
    /// The functions whose calls were recorded by probes; `None` for other recordings.
    pub probed: Option<Probed>,
    /// Seconds from the start of the program to the end of its recording; `None` for a recovered session.
    pub recorded_s: Option<f64>,
    /// Number of events converted while the program ran.
    pub events_converted_live: u64,
    /// Seconds spent on writing the traces at the end.
    pub converted_s: f64,
    /// The preloaded object, if it is kept because some processes still run: they load it again when they execute
    /// another program. A later recording removes it after they have ended.
    pub preload_object_kept: Option<PathBuf>,
    /// The session's directory, if it is kept because a log in it is damaged.
    pub session_kept: Option<PathBuf>,
    /// Bytes of log per event, before conversion; 0 without events.
    pub log_bytes_per_event: f64,
}

/// A running process that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attachment {
    /// Its process id.
    pub pid: u32,
    /// Seconds from the request to the process's next call of an allocator function, at which the recording began.
    pub begun_s: f64,
    /// Whether the process makes no call through the recorder any more. If not, its next call restores that.
    pub restored: bool,
    /// Whether it executed another program meanwhile, of which nothing is recorded. Unseen if that program ended within a
    /// quarter of a second.
    pub executed: bool,
}

/// Functions of a running process that were recorded by the kernel's breakpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// The process.
    pub pid: u32,
    /// The functions, in the order in which they were named.
    pub functions: Vec<FunctionCalls>,
    /// Nanoseconds that the probes add to a call and its return, measured on a function of hksim at the start.
    pub call_cost_ns: f64,
    /// Entries and returns that were lost, because hksim did not read them in time.
    pub records_lost: u64,
    /// Calls of other processes that execute the same files: they are slowed, but not recorded.
    pub foreign_calls: u64,
}

/// A probed function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionCalls {
    /// Its name.
    pub name: String,
    /// The function of C whose arguments it has.
    pub role: &'static str,
    /// The file in which it is, as the process sees it.
    pub file: String,
    /// Its calls, also those that another of the functions made.
    pub calls: u64,
    /// Its calls that are left out because the role cannot have such arguments, so it has others.
    pub impossible_calls: u64,
}

/// A log that cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct DamagedLog {
    /// The file.
    pub path: PathBuf,
    /// Offset of the damage, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub why: &'static str,
}

/// A process image that was not recorded, or not in full.
#[derive(Clone, Debug, Serialize)]
pub struct UnseenImage {
    /// Process id.
    pub pid: u32,
    /// The command line.
    pub command: Vec<String>,
}

/// The trace of one process image.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedTrace {
    /// The file.
    pub path: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Process id of the parent when the image began.
    pub parent_pid: u32,
    /// Whether the image began with `fork` rather than `exec`. Such an image may free blocks that its parent allocated;
    /// these frees count as unknown.
    pub forked: bool,
    /// Whether the process was still running, or a forked child that has made no call since the fork. The trace then
    /// ends at the time of the conversion.
    pub still_running: bool,
    /// The command line.
    pub command: Vec<String>,
    /// The object whose `malloc` served the image; `None` if unknown.
    pub allocator: Option<PathBuf>,
    /// Size of the file in bytes.
    pub trace_bytes: u64,
    /// Events in the trace.
    pub events: u64,
    /// Threads in the trace.
    pub threads: u32,
    /// Peak number of live objects.
    pub objects_peak: u32,
    /// Time from the start of the image to its last event, in nanoseconds.
    pub duration_ns: u64,
    /// What was lost, guessed or repaired.
    #[serde(serialize_with = "QualityNames::serialize")]
    pub quality: Quality,
    /// The program's accesses to its blocks, if they were recorded.
    pub touches: Option<Touches>,
}

/// Counts of all accesses of a program to its live blocks. An access to two blocks counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Touches {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of events in the trace that represent these accesses.
    pub events: u64,
    /// Number of calls after the end of the stream of accesses (the process was killed, or the disk was full).
    pub calls_without_stream: u64,
}

impl Touches {
    pub(crate) fn count(&mut self, access: Access, bytes: u64) {
        let (accesses, sum) = match access {
            Access::Read => (&mut self.reads, &mut self.read_bytes),
            Access::Write => (&mut self.writes, &mut self.written_bytes),
        };
        *accesses += 1;
        *sum += bytes;
    }
}

//! Errors of recording.

use std::path::{Path, PathBuf};

use hksim_linux_probe::attach_obstacle::AttachObstacle;
use hksim_memory_trace::MemoryTraceError;
use thiserror::Error;

/// Why a program could not be recorded.
#[derive(Debug, Error)]
pub enum MemoryRecordError {
    /// The program could not be started.
    #[error("cannot start {command}: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel does not grant its events.
    #[error("cannot observe page faults and memory calls: {why}; run as root")]
    NotPermitted {
        /// What is missing.
        why: String,
    },
    /// An ordinary user may not observe page faults either.
    #[error("cannot observe page faults: {why}, or run as root")]
    FaultsForbidden {
        /// What is missing, and what to do.
        why: String,
    },
    /// An ordinary user may not trace the program's calls.
    #[error(
        "cannot stop the program at memory calls ({why}): this needs ptrace and seccomp, which \
         kernel.yama.ptrace_scope above 1, a container or a tracer of this process can forbid; run as root"
    )]
    TracingForbidden {
        /// The system's error.
        why: std::io::Error,
    },
    /// Call stacks are for x86-64.
    #[error("call stacks of memory calls can be recorded on x86-64 only; leave out --stacks")]
    StacksUnsupported,
    /// A file or directory.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The files of a recording could not get their names.
    #[error(
        "{why}; the recording is kept: `hksim record --recover {}` names its files (with -o: elsewhere)",
        directory.display()
    )]
    Kept {
        /// The directory of the files.
        directory: PathBuf,
        /// What went wrong.
        #[source]
        why: Box<MemoryRecordError>,
    },
    /// A running process could not be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A recording could not be written.
    #[error(transparent)]
    Trace(#[from] MemoryTraceError),
    /// The system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Why a running process cannot be recorded.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The process is not one that can be attached to.
    #[error("process {pid}: cannot be recorded: {why}")]
    Process {
        /// Its id.
        pid: u32,
        /// The reason, and what to do.
        why: AttachObstacle,
    },
    /// The kernel does not report to this user what a running process does.
    #[error(
        "process {pid}: cannot be recorded: {why}. What a running process does is reported by tracepoints alone, which \
         need tracefs and CAP_PERFMON, that is root{paranoid}; use sudo, or start the program with hksim record --memory, \
         which needs no rights"
    )]
    NoEvents {
        /// The process.
        pid: u32,
        /// What is missing.
        why: String,
        /// The machine's setting, in brackets.
        paranoid: String,
    },
    /// A thread is in a call that cannot be interrupted.
    #[error(
        "process {pid} was not recorded: its thread {tid} did not stop within 2 s, since it is in a call that cannot be \
         interrupted (vfork, or a slow device); try again"
    )]
    DoesNotStop {
        /// The process.
        pid: u32,
        /// The thread.
        tid: i32,
    },
    /// The events of its threads could not be opened.
    #[error(
        "the events of process {pid} cannot be opened ({source}): each of its {threads} threads needs 6 open files per \
         processor; `ulimit -Hn` is the limit"
    )]
    Events {
        /// The process.
        pid: u32,
        /// Its threads.
        threads: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel is too old.
    #[error("the pages of a running process cannot be read: that needs Linux 6.7 (PAGEMAP_SCAN)")]
    NoPageScan,
    /// A file of /proc cannot be read.
    #[error("{path}: cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Huge pages could not be switched off.
    #[error(
        "huge pages of process {pid} cannot be switched off: a system-call filter (seccomp) may end it for that, or it did \
         not stop; leave out --no-huge-pages"
    )]
    HugePagesStay {
        /// The process.
        pid: u32,
    },
    /// The process that switches huge pages on again could not be created.
    #[error("cannot create the process that switches huge pages on again; leave out --no-huge-pages")]
    NoGuard,
}

impl MemoryRecordError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }

    pub(crate) fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

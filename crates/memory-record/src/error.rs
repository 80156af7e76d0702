//! Errors of recording.

use std::path::{Path, PathBuf};

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

impl MemoryRecordError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), action, source }
    }

    pub(crate) fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

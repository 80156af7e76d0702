//! Why a replay failed.

use hksim_policy::PolicyError;
use std::io;
use std::path::PathBuf;

use hksim_engine::DriveError;
use hksim_native::ReserveError;
use hksim_trace::error::TraceError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The design can't be.
    #[error("the policy can't be laid out: {0}")]
    Design(PolicyError),
    /// SuperSlabs on maps of their own, and real threads.
    #[error("with real threads SuperSlabs are followed in an arena only; use --mode ordered, or --align arena")]
    MapsOfThreads,
    /// The library to preload does not exist.
    #[error("{}: cannot preload it: {source}; give the path of a shared object", path.display())]
    NoLibrary {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The child could not be started, or its pipes failed.
    #[error("cannot {action} the replay's child process: {source}")]
    Child {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The child was ended by a signal.
    #[error("the {run} run was ended by signal {signal}{hint}")]
    Signal {
        /// Which of the runs.
        run: &'static str,
        /// The signal's number.
        signal: i32,
        /// What that may mean.
        hint: &'static str,
    },
    /// The child ended without a result.
    #[error("the {run} run ended with exit code {code} and without a result; see its messages above")]
    NoResult {
        /// Which of the runs.
        run: &'static str,
        /// Its exit code.
        code: i32,
    },
    /// What the child sent can't be read.
    #[error("the {run} run sent what is no result: {why}")]
    Garbled {
        /// Which of the runs.
        run: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The child said why it failed.
    #[error("{message}")]
    Failed {
        /// Its message.
        message: String,
    },
}

/// Why a child has no result; sent to the parent as a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the policy can't be laid out: {0}")]
    Design(PolicyError),
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    #[error("event {event}: {why}")]
    Drive { event: u64, why: DriveError },
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
    #[error(
        "{}: was not loaded into the replay; it may be for another architecture, or lack a dependency (its loader's \
         message stands above)", path.display()
    )]
    NotLoaded { path: PathBuf },
    #[error("{}: loaded, but defines no `malloc`; name an allocator's library", path.display())]
    NoAllocator { path: PathBuf },
    #[error("the trace has {threads} threads, and a threaded replay takes {most} at most; use the ordered mode")]
    TooManyThreads { threads: u32, most: u32 },
    #[error("system time is taken of ordered replays on the native allocator only")]
    OrderedNativeOnly,
}

impl ChildError {
    /// Wraps what the system said to `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> ChildError {
        move |source| ChildError::System { action, source }
    }
}

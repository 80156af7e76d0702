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
    /// The policy is invalid.
    #[error("the policy is invalid: {0}")]
    Design(PolicyError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A threaded replay cannot observe SuperSlabs with separate mappings.
    #[error("a threaded replay can observe SuperSlabs only in an arena; use --mode ordered or --align arena")]
    MapsOfThreads,
    /// A design can only be replayed in trace order.
    #[error("the design `{0}` has no threads of its own: replay it in ordered mode")]
    DesignThreads(String),
    /// The settings of a design cannot be sent to the child.
    #[error("the settings of the design `{design}`: {why}")]
    Settings {
        /// The design.
        design: String,
        /// What is wrong.
        why: String,
    },
    /// The library to preload does not exist.
    #[error("{}: cannot preload this library: {source}; give the path of a shared object", path.display())]
    NoLibrary {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The child could not be started, or its pipes failed.
    #[error("cannot {action} the replay's child process: {source}")]
    Child {
        /// What could not be done.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A signal killed the child.
    #[error("signal {signal} killed the {run} run{hint}")]
    Signal {
        /// The run.
        run: &'static str,
        /// The signal's number.
        signal: i32,
        /// The probable cause.
        hint: &'static str,
    },
    /// The child exited without a result.
    #[error("the {run} run exited with code {code} and without a result; see its messages above")]
    NoResult {
        /// The run.
        run: &'static str,
        /// Its exit code.
        code: i32,
    },
    /// The child's message cannot be read.
    #[error("the {run} run sent an invalid result: {why}")]
    Garbled {
        /// The run.
        run: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The child reported why it failed.
    #[error("{message}")]
    Failed {
        /// Its message.
        message: String,
    },
    /// A signal to this process ended a run in a control group.
    #[error("interrupted; the control group of the replay is removed")]
    Interrupted,
    /// This machine does not permit the run.
    #[error("{message}")]
    Refused {
        /// Why, and what to change.
        message: String,
    },
}

impl ReplayError {
    /// Whether the library crashed. Anything else is bad input, or this machine's.
    pub fn is_crash(&self) -> bool {
        matches!(self, ReplayError::Signal { .. } | ReplayError::NoResult { .. })
    }
}

/// Why a child has no result. The child sends it to the parent as a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the policy is invalid: {0}")]
    Design(PolicyError),
    #[error("the replay's child does not know the design `{name}`; it knows: {known}")]
    UnknownDesign { name: String, known: String },
    #[error("the settings of the design `{design}` are invalid: {why}")]
    Settings { design: String, why: String },
    #[error("the design `{design}` cannot start: errno {errno}; check its settings and the limits of the kernel")]
    Start { design: String, errno: i32 },
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    #[error("event {event}: {why}")]
    Drive { event: u64, why: DriveError },
    #[error("page faults cannot be recorded here (kernel.perf_event_paranoid must be 2 or less): {0}")]
    NoTraps(io::Error),
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: io::Error },
    #[error(
        "{}: was not loaded into the replay; it may be for another architecture, or lack a dependency (see the \
         loader's message above)", path.display()
    )]
    NotLoaded { path: PathBuf },
    #[error("{}: loaded, but defines no `malloc`; name an allocator's library", path.display())]
    NoAllocator { path: PathBuf },
    #[error("the trace has {threads} threads, but a threaded replay allows at most {most}; use --mode ordered")]
    TooManyThreads { threads: u32, most: u32 },
    #[error("system time is measured for ordered replays on the SuperSlab allocator only")]
    OrderedNativeOnly,
    #[error(
        "faults are explained, allocations and frees timed apart, and pieces timed, in ordered replays on a `malloc` only"
    )]
    OrderedMallocOnly,
    #[error("a memory limit applies to ordered replays on native or on a malloc library only")]
    OrderedLimitOnly,
}

impl ChildError {
    /// Wraps the system's error from `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> ChildError {
        move |source| ChildError::System { action, source }
    }
}

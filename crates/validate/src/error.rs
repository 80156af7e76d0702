//! Why nothing can be compared.

use std::io;
use std::path::{Path, PathBuf};

use hksim_conformance::{HostError, ModeError};
use hksim_memory_record::MemoryRecordError;
use hksim_memory_sim::{FamilyError, PredictError};
use hksim_memory_trace::MemoryTraceError;
use hksim_replay::ReplayError;
use hksim_sim::SimError;
use hksim_trace::error::TraceError;
use thiserror::Error;

/// A prediction or a measurement cannot be made.
#[derive(Debug, Error)]
pub enum ValidateError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The simulation failed.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// The replay cannot start.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A memory recording cannot be read or written.
    #[error(transparent)]
    Recording(#[from] MemoryTraceError),
    /// Recordings cannot be simulated.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// Nothing can be predicted for a recording.
    #[error(transparent)]
    Prediction(#[from] PredictError),
    /// The program cannot be recorded.
    #[error(transparent)]
    Recorder(#[from] MemoryRecordError),
    /// This machine's settings cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// This machine's settings cannot be changed.
    #[error("--set-modes: {0}")]
    Modes(#[from] ModeError),
    /// A directory cannot be used.
    #[error("{}: cannot {what}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no place for temporary files.
    #[error("cannot create a temporary directory; set TMPDIR")]
    Temporary(#[source] io::Error),
    /// An allocator would see another THP mode than the predicted one.
    #[error(
        "--thp {wanted}: allocators read the machine's mode ({here}) at their start; run as root, so that they see this \
         one, or leave --thp out"
    )]
    OtherMode {
        /// The predicted mode.
        wanted: &'static str,
        /// The machine's.
        here: String,
    },
    /// An error of one of several runs.
    #[error("{what}")]
    Within {
        /// The run.
        what: String,
        /// Its error.
        #[source]
        source: Box<ValidateError>,
    },
    /// A file of a run cannot be read.
    #[error("{what}")]
    Reading {
        /// What was read.
        what: &'static str,
        /// Why it cannot be.
        #[source]
        source: Box<ValidateError>,
    },
    /// The program was not recorded again as it was asked for.
    #[error("recording the program again: {0}")]
    RecordedAgain(String),
    /// The setting exists only in the recording or the model, so it cannot be measured.
    #[error("{0}")]
    NotMeasurable(&'static str),
    /// The replays of one comparison touch alike.
    #[error("--touch: designs are timed with the same touches; give one rule")]
    SeveralTouches,
    /// A memory control group cannot be used.
    #[error("the memory control group of a run: {0}")]
    Group(String),
    /// A design of a calibration has no predicted time.
    #[error("the times of memory and kernel: {0}")]
    NoCosts(String),
    /// A signal to this process ended a run.
    #[error("interrupted; the control group of the run is removed")]
    Interrupted,
    /// A recording gave no prediction.
    #[error("no prediction")]
    NoPrediction,
}

impl ValidateError {
    /// The error of a replay, with its allocator and trace.
    pub(crate) fn of_replay(word: &str, trace: &Path, why: ValidateError) -> ValidateError {
        ValidateError::Within { what: format!("{word} on {}", trace.display()), source: Box::new(why) }
    }

    /// Whether the library of a replay crashed, so that only its own rows are missing.
    pub fn is_crash(&self) -> bool {
        match self {
            ValidateError::Within { source, .. } => source.is_crash(),
            ValidateError::Replay(why) => why.is_crash(),
            _ => false,
        }
    }

    /// The error of reading something, with what it is.
    pub(crate) fn reading<E: Into<ValidateError>>(what: &'static str) -> impl FnOnce(E) -> ValidateError {
        move |source| ValidateError::Reading { what, source: Box::new(source.into()) }
    }
}

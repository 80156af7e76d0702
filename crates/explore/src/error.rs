//! Why designs could not be simulated or ranked.

use std::path::PathBuf;

use hksim_conformance::HostError;
use hksim_sim::SimError;
use hksim_trace::error::TraceError;
use thiserror::Error;

use crate::flags::ConfigError;
use crate::journal::JournalError;
use crate::question::QuestionError;
use crate::rank::RankError;

/// Designs could not be simulated or ranked.
#[derive(Debug, Error)]
pub enum ExploreError {
    /// A simulation failed.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// This machine's settings cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A run configuration cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The question does not fit the traces.
    #[error(transparent)]
    Question(#[from] QuestionError),
    /// The designs cannot be ranked.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// The journal of a sweep cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A word is not a value of its flag.
    #[error("--{flag} {why}")]
    Word {
        /// The flag.
        flag: String,
        /// The word, and why.
        why: String,
    },
    /// An axis of a space has no flag.
    #[error("--{0}: unknown flag")]
    NoFlag(String),
    /// Another worker failed while it wrote this journal.
    #[error("{}: a worker failed", .0.display())]
    Worker(PathBuf),
    /// A row of a sweep was not simulated.
    #[error("row {0} is missing")]
    MissingRow(usize),
}

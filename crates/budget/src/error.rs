//! Why a budget cannot be checked.

use std::path::PathBuf;

use hksim_cost_model::CostError;
use hksim_explore::error::ExploreError;
use hksim_memory_sim::PredictError;
use hksim_memory_trace::MemoryTraceError;
use hksim_replay::ReplayError;
use hksim_trace::error::TraceError;
use thiserror::Error;

use crate::metric::Metric;

/// Why a budget cannot be read or checked.
#[derive(Debug, Error)]
pub enum BudgetError {
    /// Not a budget.
    #[error("line {line}: {why}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// An amount that is none.
    #[error("design.{design}: {name} = \"{text}\": expected {expected}")]
    Amount {
        /// The design.
        design: String,
        /// The limit.
        name: &'static str,
        /// Its text.
        text: String,
        /// What is expected.
        expected: &'static str,
    },
    /// There is nothing to check.
    #[error("{0}")]
    Nothing(&'static str),
    /// A design without limits.
    #[error("design.{0}: no limit; set at least one of {limits}", limits = Metric::ALL.map(Metric::word).join(", "))]
    NoLimit(String),
    /// A design that names several things.
    #[error("design.{0}: `{1}` and `{2}`: set one of them")]
    Several(String, &'static str, &'static str),
    /// A trace named twice.
    #[error("traces: {0} is there twice; name each trace once")]
    Twice(String),
    /// Words that are no settings of the kernel.
    #[error("design.{design}: setting = \"{words}\": {why}")]
    Setting {
        /// The design.
        design: String,
        /// Its words.
        words: String,
        /// Why, and what to write.
        why: String,
    },
    /// A limit that will not be known.
    #[error("design.{design}: {name}: {why}")]
    Unknown {
        /// The design.
        design: String,
        /// The limit.
        name: &'static str,
        /// Why, and what to do.
        why: String,
    },
    /// A file that a design cannot be checked with.
    #[error("{}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// An allocator that this machine does not have.
    #[error("design.{design}: {why}")]
    Missing {
        /// The design.
        design: String,
        /// Why, and what to install.
        why: String,
    },
    /// A simulation failed.
    #[error(transparent)]
    Explore(#[from] ExploreError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A memory recording cannot be read.
    #[error(transparent)]
    Recording(#[from] MemoryTraceError),
    /// A memory recording cannot be simulated.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The profile cannot be read.
    #[error(transparent)]
    Profile(#[from] CostError),
}

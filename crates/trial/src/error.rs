//! What can go wrong.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A trial cannot be made.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The program does not exist, or cannot be executed.
    #[error(transparent)]
    Program(#[from] hksim_record::RecordError),
    /// The file for its standard input cannot be read.
    #[error("{path}: cannot read: {source}")]
    Input {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A moment cannot be marked.
#[derive(Debug, Error)]
pub enum MarkError {
    /// The name is empty or too long.
    #[error(transparent)]
    Name(#[from] hksim_record::RecordError),
    /// The trial is over, or this user may not mark.
    #[error("the trial did not take the mark: {0}")]
    NotTaken(#[source] io::Error),
}

/// A row has no figures.
#[derive(Debug, Error)]
pub enum RunError {
    /// This process cannot start its helper, or does not understand it.
    #[error("cannot start a run: {0}")]
    Keeper(#[source] io::Error),
    /// The program cannot be executed.
    #[error("the program cannot be executed: {0}")]
    NotStarted(String),
    /// The run was not the one that was asked for.
    #[error("{0}")]
    Trouble(String),
    /// The program ended otherwise than in the first row.
    #[error("{}", other_status(.own, .first, .said.as_deref()))]
    Status {
        /// How it ended.
        own: String,
        /// How it ended in the first row.
        first: String,
        /// The last line of its standard error.
        said: Option<String>,
    },
    /// The machine's huge-page mode cannot be set.
    #[error("cannot set the machine's huge-page mode: {0}")]
    Mode(#[from] hksim_conformance::ModeError),
    /// Another process set it during a run.
    #[error("another process changed the machine's huge-page mode during a run; run the trial again")]
    ModeChanged,
    /// A large part of the program had another allocator.
    #[error(
        "{program} ran without {library}, so these would be the figures of another allocator: it is static, or was \
         started with an environment of its own"
    )]
    Unserved {
        /// The executable.
        program: String,
        /// The library.
        library: String,
    },
}

fn other_status(own: &str, first: &str, said: Option<&str>) -> String {
    let said = said.map_or(String::new(), |line| format!(" ({})", hksim_text::plain(line)));
    format!("the program ended with {own} instead of {first}{said}")
}

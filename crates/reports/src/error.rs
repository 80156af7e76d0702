//! Why a result cannot be shown.

use std::error::Error as StdError;

use hksim_results::ResultError;
use thiserror::Error;

/// A result cannot be shown.
#[derive(Debug, Error)]
pub enum ReportError {
    /// Drawing failed.
    #[error("cannot draw: {0}")]
    Drawing(String),
    /// The result is of a kind that is not shown.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// A part of the result, or of the output, has a fault.
    #[error("{what}")]
    Part {
        /// The part, or its fault.
        what: String,
        /// The cause, if there is one.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

/// The result of showing something.
pub type Result<T, E = ReportError> = std::result::Result<T, E>;

/// Names the part that has a fault.
pub(crate) trait Context<T> {
    fn context(self, what: &str) -> Result<T>;
    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: StdError + Send + Sync + 'static> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what)
    }

    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| ReportError::Part { what: what().into(), source: Some(Box::new(source)) })
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what)
    }

    fn with_context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.ok_or_else(|| ReportError::Part { what: what().into(), source: None })
    }
}

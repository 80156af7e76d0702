//! Why a result cannot be read.

use std::error::Error as StdError;
use std::io;

use hksim_explore::figure_range::ImpossibleFigure;
use hksim_sim::report::SCHEMA;
use thiserror::Error;

/// A command that writes a result.
pub const WRITE_RESULT: &str = "`hksim sweep TRACE.hkt --format json -o result.json`";

/// A result cannot be read.
#[derive(Debug, Error)]
pub enum ResultError {
    /// The file cannot be read.
    #[error("{file}: cannot read the result")]
    Io {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not JSON.
    #[error("{file}: not a JSON result; write one with {WRITE_RESULT}")]
    Json {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another version of hksim wrote it.
    #[error("{file}: schema {schema} (hksim {version}), and this hksim reads schema {SCHEMA}; {}", remedy(*schema))]
    OtherSchema {
        /// The file.
        file: String,
        /// Its schema.
        schema: u64,
        /// The version that wrote it.
        version: String,
    },
    /// A figure is too large.
    #[error(transparent)]
    Figure(#[from] ImpossibleFigure),
    /// A result that is not shown in reports and bundles.
    #[error(
        "{0}: a result of `explain --fit`, whose counts file names its own traces: reports and bundles do not contain it; \
         share the counts file, its traces and the result"
    )]
    Fit(String),
    /// Not a result of a known kind.
    #[error(
        "{0}: not a result that a report shows: JSON of sim, sweep, explain, validate, advise, check, compare, trial or inspect; \
         sim, sweep and validate also of memory recordings (.hkm)"
    )]
    Kind(String),
    /// A part of a result is damaged.
    #[error("{place}: cannot read the {what}")]
    Part {
        /// The place of the part, or the file.
        place: String,
        /// What it is.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A file with a fault.
    #[error("{file}")]
    In {
        /// The file.
        file: String,
        /// The fault.
        #[source]
        source: Box<ResultError>,
    },
    /// A file is missing, damaged, or not what it should be.
    #[error("{message}")]
    File {
        /// The file, and what is wrong.
        message: String,
        /// Why, if a library says so.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
}

impl ResultError {
    pub(crate) fn file(message: String) -> ResultError {
        ResultError::File { message, source: None }
    }

    pub(crate) fn file_by(message: String, source: impl StdError + Send + Sync + 'static) -> ResultError {
        ResultError::File { message, source: Some(Box::new(source)) }
    }
}

/// What to do with a result of this other schema.
fn remedy(schema: u64) -> &'static str {
    if schema > u64::from(SCHEMA) { "use a newer one" } else { "make the result again" }
}

//! Errors of converters.

use crate::error::TraceError;
use std::borrow::Cow;

/// An error of a converter. The caller adds the place from the [`super::input::Input`].
#[derive(Debug)]
pub(super) enum Failure {
    /// The input cannot be used. The place of the error is the one that was read last.
    Refused {
        /// What is wrong.
        why: Cow<'static, str>,
        /// What to do.
        remedy: &'static str,
    },
    /// An error that already has its place.
    Trace(TraceError),
}

/// What to do about an error that has no remedy of its own.
const REMEDY: &str = "correct the file there, or name the format with --from";

impl Failure {
    pub(super) fn new(why: impl Into<Cow<'static, str>>, remedy: &'static str) -> Self {
        Failure::Refused { why: why.into(), remedy }
    }
}

impl From<&'static str> for Failure {
    fn from(why: &'static str) -> Self {
        Failure::new(why, REMEDY)
    }
}

impl From<TraceError> for Failure {
    fn from(why: TraceError) -> Self {
        Failure::Trace(why)
    }
}

//! Errors of converters; `mod.rs` adds the place.

use crate::error::TraceError;
use std::borrow::Cow;

/// An error of a converter, without the place: the [`super::input::Input`] has it.
#[derive(Debug)]
pub(super) enum Failure {
    /// The input cannot be used, at the place read last.
    Refused {
        /// What is wrong.
        why: Cow<'static, str>,
        /// What to do.
        remedy: &'static str,
    },
    /// An error that already has its place.
    Trace(TraceError),
}

/// What to do about an error that does not say it.
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

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
        mend: &'static str,
    },
    /// An error that already has its place.
    Trace(TraceError),
}

/// What to do, where an error does not say it.
const MEND: &str = "correct the file there, or name the format with --from";

impl Failure {
    pub(super) fn new(why: impl Into<Cow<'static, str>>, mend: &'static str) -> Self {
        Failure::Refused { why: why.into(), mend }
    }
}

impl From<&'static str> for Failure {
    fn from(why: &'static str) -> Self {
        Failure::new(why, MEND)
    }
}

impl From<TraceError> for Failure {
    fn from(why: TraceError) -> Self {
        Failure::Trace(why)
    }
}

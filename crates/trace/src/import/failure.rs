//! Why a converter stopped: the frame in `mod.rs` adds the place.

use crate::error::TraceError;
use std::borrow::Cow;

/// An error of a converter, without the place, which the [`super::input::Input`] knows.
#[derive(Debug)]
pub(super) enum Failure {
    /// The input, at the place read last, cannot be used.
    Refused {
        /// What is wrong.
        why: Cow<'static, str>,
        /// What to do.
        mend: &'static str,
    },
    /// An error that names its place itself.
    Trace(TraceError),
}

/// The mend of a refusal that names none.
const MEND: &str = "mend it there, or name the format with --from";

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

//! What measures candidates.

use std::path::PathBuf;

use hksim_explore::figures::Figure;
use hksim_replay::compare::Outcome;
use hksim_timing::{Effort, Timings};

use crate::candidate::Candidate;
use crate::error::ChooseError;

/// A figure that replays measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurable {
    /// Processor time.
    Time,
    /// Peak resident bytes.
    Rss,
    /// Resident bytes at the end.
    RssEnd,
}

impl Measurable {
    /// All of them.
    pub(crate) const ALL: [Measurable; 3] = [Measurable::Time, Measurable::Rss, Measurable::RssEnd];

    /// The measured one of all figures.
    ///
    /// # Errors
    /// Replays do not measure it.
    pub fn of(figure: Figure) -> Result<Measurable, ChooseError> {
        match figure {
            Figure::Time => Ok(Measurable::Time),
            Figure::Rss => Ok(Measurable::Rss),
            Figure::RssEnd => Ok(Measurable::RssEnd),
            other => Err(ChooseError::Figure(other)),
        }
    }

    /// The figure.
    pub(crate) fn figure(self) -> Figure {
        match self {
            Measurable::Time => Figure::Time,
            Measurable::Rss => Figure::Rss,
            Measurable::RssEnd => Figure::RssEnd,
        }
    }
}

/// The pages of a candidate on one trace. Figures that could not be measured are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Peak resident bytes: the growth since the first call, and what the candidate took before it, such as a huge page for
    /// its own data.
    pub rss_bytes_peak: Option<u64>,
    /// Resident bytes at the end, likewise.
    pub rss_bytes_end: Option<u64>,
    /// Minor faults.
    pub faults: Option<u64>,
}

/// A candidate whose pages were counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The library; `None` for the C library.
    pub library: Option<PathBuf>,
    /// Its version, if it tells one.
    pub version: Option<String>,
    /// Assignments of environment variables that make a program use the candidate.
    pub apply: Vec<String>,
    /// Its pages on each trace, or why there are none.
    pub counts: Result<Vec<Counts>, (Outcome, String)>,
    /// Why its pages are predicted, if they are: it cannot be timed then.
    pub predicted: Option<String>,
}

impl Counted {
    /// A candidate that this machine does not have, and why.
    pub(crate) fn missing(why: String) -> Counted {
        let counts = Err((Outcome::Skipped, why));
        Counted { library: None, version: None, apply: Vec::new(), counts, predicted: None }
    }
}

/// Measures candidates on traces. A candidate that fails is told apart from the others, which go on.
pub trait Bench {
    /// Names of the traces, each with its weight.
    fn traces(&self) -> Vec<(String, f64)>;

    /// Counts the pages of a candidate on each trace.
    fn count(&mut self, candidate: &Candidate) -> Counted;

    /// Times candidates on each trace, in rounds of random order. The first is what the others are compared with.
    fn time(&mut self, candidates: &[Candidate], effort: Effort) -> Vec<Timings<String>>;
}

//! A point in a trace, written as `20000` (after this many events), the name of a mark, or `end`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hksim_trace::error::TraceError;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use hksim_trace::tools::named_part;
use thiserror::Error;

use hksim_policy::units::parse_count;

/// A point in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// After this many events.
    Event(u64),
    /// After the first mark of this name.
    Mark(String),
    /// After the last event.
    End,
}

/// A trace does not have a point.
#[derive(Debug, Error)]
pub enum PointError {
    /// The trace cannot be read, or lacks the mark.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace is shorter.
    #[error("{}: has no event {event}; name one of 1 to {events}", trace.display())]
    NoEvent {
        /// The trace.
        trace: PathBuf,
        /// The event.
        event: u64,
        /// Its events.
        events: u64,
    },
}

impl FromStr for Point {
    type Err = std::convert::Infallible;

    /// A word that reads as a count is a count, even if a mark has that name.
    fn from_str(word: &str) -> Result<Point, Self::Err> {
        Ok(match (word, parse_count(word)) {
            ("end", _) => Point::End,
            (_, Ok(events)) => Point::Event(events),
            (name, Err(_)) => Point::Mark(name.to_string()),
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Event(event) => write!(f, "{event}"),
            Point::Mark(name) => f.write_str(name),
            Point::End => f.write_str("end"),
        }
    }
}

impl Point {
    /// The number of events before it in a trace, 1 or more.
    ///
    /// # Errors
    /// The trace cannot be read, lacks the mark, or is shorter.
    pub fn event(&self, trace: &Path) -> Result<u64, PointError> {
        let mut reader = TraceReader::open(trace)?;
        let events = reader.summary().events;
        match self {
            Point::End => Ok(events),
            Point::Event(event) if (1..=events).contains(event) => Ok(*event),
            Point::Event(event) => Err(PointError::NoEvent { trace: trace.to_path_buf(), event: *event, events }),
            Point::Mark(name) => Ok(named_part(&mut reader, name, None)?.start + 1),
        }
    }
}

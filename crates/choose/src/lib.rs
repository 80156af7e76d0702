#![doc = include_str!("../README.md")]

mod axes;
mod bench;
mod candidate;
mod decide;
mod error;
mod predicted;
mod promise;
mod relation;
mod replays;
mod search;
mod sentences;
mod table;

pub use axes::families;
pub use bench::{Bench, Counted, Counts, Measurable};
pub use candidate::{Candidate, Family};
pub use error::ChooseError;
pub use predicted::Predictions;
pub use promise::{Promised, promises};
pub use replays::{Replays, TraceFile};
pub use search::{Request, choose};

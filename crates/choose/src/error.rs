//! Why there is no choice.

use hksim_explore::figures::Figure;
use hksim_replay::compare::RangeError;
use thiserror::Error;

/// There is no choice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChooseError {
    /// Replays do not measure this figure.
    #[error(
        "{0}: replays on allocators measure time, rss and rss-end; the other figures are those of hksim's own designs, \
         without --on"
    )]
    Figure(Figure),
    /// The allocator that others are compared with cannot be measured.
    #[error("{allocator}: the present allocator, which all others are compared with, cannot be measured: {why}")]
    Present {
        /// The allocator.
        allocator: String,
        /// Why.
        why: String,
    },
    /// An allocator is named twice, which would be one row.
    #[error("{0}: named twice; leave one out")]
    Repeated(String),
    /// A range of settings has no values.
    #[error(transparent)]
    Range(#[from] RangeError),
}

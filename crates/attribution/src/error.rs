//! Why nothing could be explained.

use hksim_explore::error::ExploreError;
use hksim_replay::ReplayError;
use hksim_sim::SimError;
use hksim_trace::error::TraceError;

/// Why nothing could be explained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttributionError {
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A design could not be simulated.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// The machine's settings cannot be read.
    #[error(transparent)]
    Explore(#[from] ExploreError),
}

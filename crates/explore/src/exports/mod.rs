//! Tables of single events under a design: where objects are placed, and which pages are accessed.

pub mod accesses;
pub mod addresses;
pub mod pages;

use std::io;

use hksim_sim::SimError;
use thiserror::Error;

/// Why rows could not be written.
#[derive(Debug, Error)]
pub enum Broken {
    /// The simulation failed.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

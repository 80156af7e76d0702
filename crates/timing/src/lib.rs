#![doc = include_str!("../README.md")]

mod arrangement;
pub mod clock;
mod estimate;
mod rounds;
mod sample;
mod stop;
mod verdict;

pub use arrangement::{Arrangement, OneCpu};
pub use estimate::{CONFIDENCE, Estimate, ROUNDS_FOR_INTERVAL, median_with_interval};
pub use rounds::{Plan, Timed, Timings, random_seed, time};
pub use sample::{Sample, Subject};
pub use stop::{Effort, Ended, ROUNDS_MAX};
pub use verdict::Verdict;

/// Other work on the processor's core is worth a word from this share of the looks on ([`Timings::core_shared_share`]).
pub const TOLD_SHARE: f64 = 0.1;

//! Dev-only: a third world and an independent model, to hold the allocator against.
//!
//! - [`PlainMemory`]: the policy's [`Memory`](hksim_policy::Memory) on plain vectors, with real bytes and no tolerance: whatever the
//!   contract of the seam forbids is a panic.
//! - [`NaiveModel`]: what an allocator promises, from the requests and the addresses alone.
//! - [`Player`]: seeded random programs on a `PlainMemory`, every answer checked by the model.
//! - [`CProgram`]: an oracle in C; [`cases`]: a runner for tests that start themselves.
//! - [`spread`]: designs to run them on; [`events`]: random traces for the drivers.

mod advised;
mod bytes;
mod c_program;
pub mod cases;
pub mod events;
mod looks;
mod naive;
pub mod pattern;
mod places;
mod plain;
mod player;
mod pool_check;
mod random;
pub mod spread;
mod superslab;
mod trial;

pub use c_program::CProgram;
pub use looks::Looks;
pub use naive::{Alignment, NaiveModel, Object};
pub use plain::{Failing, PlainGuard, PlainMemory};
pub use player::{Limits, Player, Tally, drain_abandoned};
pub use random::Random;
pub use trial::{EASY, Hardship, play};

/// How much longer than by default the random tests run: `HKSIM_TEST_SCALE`, 1 where it is not set.
///
/// # Panics
/// If it is no number above 0.
pub fn test_scale() -> u64 {
    match std::env::var("HKSIM_TEST_SCALE") {
        Ok(value) => match value.parse() {
            Ok(scale) if scale > 0 => scale,
            _ => panic!("HKSIM_TEST_SCALE is {value:?}; it must be a whole number above 0"),
        },
        Err(_) => 1,
    }
}

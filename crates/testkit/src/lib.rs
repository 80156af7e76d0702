//! For development only: a third implementation of memory and an independent model, for tests of the allocator.
//!
//! - [`PlainMemory`]: the policy's [`Memory`](hksim_policy::Memory) on plain vectors with real bytes. It panics on
//!   every violation of the trait's contract.
//! - [`NaiveModel`]: the guarantees of an allocator, checked from requests and addresses alone.
//! - [`Player`]: seeded random programs on a `PlainMemory`; the model checks every result.
//! - [`compile`]: programs in C; [`CProgram`]: an oracle in C; [`cases`]: a runner for tests that execute their own program again.
//! - [`modes`]: keeps the machine's modes during a test.
//! - [`spread`]: random policies; [`events`]: random traces for drivers.

mod advised;
mod bytes;
mod c_program;
pub mod cases;
mod check_schedule;
pub mod events;
mod mappings;
pub mod modes;
mod naive;
pub mod pattern;
mod plain;
mod player;
mod pool_check;
mod random;
pub mod spread;
mod superslab;
mod trial;

pub use c_program::{CProgram, compile};
pub use check_schedule::CheckSchedule;
pub use naive::{Alignment, NaiveModel, Object};
pub use plain::{Failing, PlainGuard, PlainMemory};
pub use player::{Limits, Player, PlayerCounts, drain_abandoned};
pub use random::Random;
pub use trial::{FaultPlan, NO_FAULTS, play};

/// The factor by which random tests run longer, from the environment variable `HKSIM_TEST_SCALE`; 1 by default.
///
/// # Panics
/// If the variable is not a whole number above 0.
pub fn test_scale() -> u64 {
    match std::env::var("HKSIM_TEST_SCALE") {
        Ok(value) => match value.parse() {
            Ok(scale) if scale > 0 => scale,
            _ => panic!("HKSIM_TEST_SCALE is {value:?}; it must be a whole number above 0"),
        },
        Err(_) => 1,
    }
}

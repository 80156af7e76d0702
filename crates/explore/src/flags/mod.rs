//! The flags of a simulated or replayed run, and the run configurations that they describe.
//!
//! - [`table`]: the table of all flags; [`mthp`]: modes of huge-page sizes; [`range`]: ranges of values.
//! - [`run_config`]: a policy, the program's behaviour and the kernel; [`row`]: reads it from a row of a result.

pub mod mthp;
pub mod range;
pub mod row;
pub mod run_config;
pub mod table;

pub use run_config::{BaseKernel, ConfigError, ModesFrom, RunConfig, varied};

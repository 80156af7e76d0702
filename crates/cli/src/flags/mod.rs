//! Policy flags: parsing the command line into run configurations.
//!
//! - [`table`]: the table of all flags; [`mthp`]: modes of huge-page sizes.
//! - [`argv`]: arguments before clap parses them; [`args`]: the parsed words; [`run_config`]: the resulting
//!   configuration. `range`: ranges of values; [`between`]: numbers of other options.
//! - [`row`]: reads a result back; `policy_file`: reads a policy from a file.

pub mod args;
pub mod argv;
pub mod between;
#[cfg(test)]
mod docs;
pub mod mthp;
pub mod policy_file;
mod range;
pub mod row;
pub mod run_config;
pub mod table;

pub use args::{HostPolicyArgs, HugeList, PolicyArgs};
pub use run_config::{BaseKernel, ModesFrom, RunConfig, varied};

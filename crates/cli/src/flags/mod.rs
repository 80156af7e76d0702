//! Policy flags: parsing the command line into run configurations.
//!
//! - [`argv`]: arguments before clap parses them; [`args`]: the parsed words. [`between`]: numbers of other options.
//!
//! The table of all flags is [`table`], in `hksim-explore`.

pub mod args;
pub mod argv;
pub mod between;
pub mod designs;
#[cfg(test)]
mod docs;
pub mod supervision;
pub mod timing;

pub use args::{HostPolicyArgs, HugeList, PolicyArgs};
pub use designs::DesignArgs;
pub use hksim_explore::flags::{BaseKernel, ModesFrom, RunConfig, table, varied};

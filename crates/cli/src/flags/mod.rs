//! Policy flags: from the words of the command line to designs.
//!
//! - [`table`]: every flag, once; [`mthp`]: modes of sizes of huge pages;
//!   [`row`]: results read back; `policy_file`: policies in files.
//! - [`argv`]: words before clap sees them; [`args`]: the raw words; [`choice`]: what they decide.

pub mod args;
pub mod argv;
pub mod choice;
#[cfg(test)]
mod docs;
pub mod mthp;
mod policy_file;
pub mod row;
pub mod table;

pub use args::{HostPolicyArgs, HugeList, PolicyArgs};
pub use choice::{BaseKernel, Choice, ModesFrom, varied};

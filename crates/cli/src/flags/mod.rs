//! Policy flags: from the words of the command line to designs.
//!
//! - [`table`]: every flag, once; [`values`]: numbers with units.
//! - [`argv`]: words before clap sees them; [`args`]: the raw words; [`choice`]: what they decide.

pub mod args;
pub mod argv;
pub mod choice;
#[cfg(test)]
mod docs;
pub mod table;
pub mod values;

pub use args::{HostPolicyArgs, HugeList, PolicyArgs};
pub use choice::{BaseKernel, Choice, varied};

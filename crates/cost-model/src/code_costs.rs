//! The cost of the allocator's code.

use serde::{Deserialize, Serialize};

use crate::profile::Cost;

/// The time of code whose data are in the first cache, in user mode: no share of it is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeCosts {
    /// An instruction of the allocator.
    pub instruction: Cost,
    /// A call, besides its instructions: mostly mispredicted branches.
    pub call: Cost,
}

impl CodeCosts {
    /// What is wrong with costs that were read.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, cost) in [("instruction", self.instruction), ("call", self.call)] {
            cost.check().map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }
}

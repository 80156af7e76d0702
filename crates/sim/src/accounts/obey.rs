//! The program's memory policies, as its kernel obeys them.

use hksim_drive::PolicyRule;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};

use super::Accounts;
use crate::kernel;
use crate::report::PolicyLabel;

impl Accounts {
    /// The program makes a change, which that rule puts in force or not.
    pub(crate) fn change_policy(&mut self, change: MemoryPolicy, rule: PolicyRule) {
        self.memory_policy.changes += 1;
        match change {
            _ if rule == PolicyRule::Ignored => {}
            MemoryPolicy::ThpDisable(disable) => self.kernel.disable_thp(match disable {
                ThpDisable::Off => kernel::ThpDisable::Off,
                ThpDisable::All => kernel::ThpDisable::All,
                ThpDisable::ExceptAdvised => kernel::ThpDisable::ExceptAdvised,
            }),
            MemoryPolicy::LockAll(lock) => self.memory_policy.locks += u64::from(lock != LockAll::NONE),
            // Nothing that is modelled depends on it.
            MemoryPolicy::Personality(_) => {}
        }
    }

    /// What came of the changes, under that rule.
    pub(crate) fn memory_policy(&self, rule: PolicyRule) -> PolicyLabel {
        PolicyLabel { rule, installs_kept_small: self.kernel.installs_kept_small(), ..self.memory_policy }
    }
}

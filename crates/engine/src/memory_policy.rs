//! Whether a simulation or replay applies the program's process-wide memory settings (mlockall, THP disable).

use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Op;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy};
use serde::{Deserialize, Serialize};

/// How a simulation or replay treats the memory policies in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicyRule {
    /// Apply them as recorded.
    #[default]
    Recorded,
    /// Ignore them, to see how the program would behave without them.
    Ignored,
}

impl MemoryPolicyRule {
    /// Every rule, in the order of the help text.
    pub const ALL: [MemoryPolicyRule; 2] = [MemoryPolicyRule::Recorded, MemoryPolicyRule::Ignored];

    /// The value on the command line.
    pub fn word(self) -> &'static str {
        match self {
            MemoryPolicyRule::Recorded => "recorded",
            MemoryPolicyRule::Ignored => "ignored",
        }
    }

    /// Parses the value on the command line.
    pub fn from_word(word: &str) -> Option<MemoryPolicyRule> {
        MemoryPolicyRule::ALL.into_iter().find(|rule| rule.word() == word)
    }

    /// The policy change that an event causes under this rule, if any.
    #[inline(always)]
    pub fn change(self, op: &Op) -> Option<MemoryPolicy> {
        match *op {
            Op::MemoryPolicy { policy, .. } if self == MemoryPolicyRule::Recorded => Some(policy),
            _ => None,
        }
    }

    /// The `mlockall` or `munlockall` that an event causes under this rule, if any, in the form that the allocator
    /// accepts.
    #[inline(always)]
    pub fn lock(self, op: &Op) -> Option<MemoryLock> {
        match self.change(op) {
            Some(MemoryPolicy::LockAll(LockAll { current, future, on_fault })) => {
                Some(MemoryLock { current, future, on_fault })
            }
            _ => None,
        }
    }
}

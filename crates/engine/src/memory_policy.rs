//! Whether what the program asked of the kernel for all of its memory is asked again.

use hksim_policy::memory::MemoryLock;
use hksim_trace::event::Op;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy};
use serde::{Deserialize, Serialize};

/// What becomes of the trace's memory policies: alike in a simulation and in a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryPolicyRule {
    /// They are in force, as the trace says.
    #[default]
    Recorded,
    /// They are not: what if the program left them alone?
    Ignored,
}

impl MemoryPolicyRule {
    /// Every rule, in the order of the help text.
    pub const ALL: [MemoryPolicyRule; 2] = [MemoryPolicyRule::Recorded, MemoryPolicyRule::Ignored];

    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            MemoryPolicyRule::Recorded => "recorded",
            MemoryPolicyRule::Ignored => "ignored",
        }
    }

    /// The rule of that word.
    pub fn from_word(word: &str) -> Option<MemoryPolicyRule> {
        MemoryPolicyRule::ALL.into_iter().find(|rule| rule.word() == word)
    }

    /// The change that an event makes, if it makes one under this rule.
    #[inline(always)]
    pub fn change(self, op: &Op) -> Option<MemoryPolicy> {
        match *op {
            Op::MemoryPolicy { policy, .. } if self == MemoryPolicyRule::Recorded => Some(policy),
            _ => None,
        }
    }

    /// The `mlockall` or `munlockall` that an event makes, if it makes one under this rule: what the allocator is told.
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

//! Applies the program's memory policies to the kernel model.

use std::ops::Range;

use hksim_engine::MemoryPolicyRule;
use hksim_policy::Errno;
use hksim_policy::memory::{Locking, MemoryLock};
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};

use super::{Accounting, InstalledBy, errno};
use crate::report::MemoryPolicyLabel;
use hksim_linux_mm::{self as kernel, LockFlags};

impl Accounting {
    /// Records a policy change by the program, and applies it if `rule` says so.
    pub(crate) fn change_policy(&mut self, change: MemoryPolicy, rule: MemoryPolicyRule) {
        self.memory_policy.changes += 1;
        match change {
            _ if rule == MemoryPolicyRule::Ignored => {}
            MemoryPolicy::ThpDisable(disable) => self.kernel.disable_thp(match disable {
                ThpDisable::Off => kernel::ThpDisable::Off,
                ThpDisable::All => kernel::ThpDisable::All,
                ThpDisable::ExceptAdvised => kernel::ThpDisable::ExceptAdvised,
            }),
            // The allocator decides which ranges to lock.
            MemoryPolicy::LockAll(lock) => self.memory_policy.mlockall_calls += u64::from(lock != LockAll::NONE),
            // No effect in the model.
            MemoryPolicy::Personality(_) => {}
        }
    }

    /// The process-wide part of `mlockall`: see `Allocator::lock_memory`.
    pub(super) fn change_locks(&mut self, lock: MemoryLock) {
        if lock.current || !lock.future {
            self.kernel.unlock_all();
        }
        if lock.future {
            let flags = LockFlags { current: false, future: true, on_fault: lock.on_fault };
            // The model refuses only invalid flags, and these are valid.
            let _ = self.kernel.lock_all(flags).result;
        }
        self.note_peaks();
    }

    /// `mlock2`. Counted as a call of the program, not of the allocator.
    pub(super) fn lock_pages(&mut self, pages: Range<u64>, locking: Locking) -> Result<(), Errno> {
        let outcome = self.kernel.lock(pages, locking == Locking::OnFault);
        self.account_for(outcome.installs, InstalledBy::Populate);
        self.note_peaks();
        outcome.result.map_err(errno)
    }

    /// The changes and their effect, for the report.
    pub(crate) fn memory_policy(&self, rule: MemoryPolicyRule) -> MemoryPolicyLabel {
        MemoryPolicyLabel { rule, installs_thp_denied: self.kernel.installs_thp_denied(), ..self.memory_policy }
    }
}

//! The limit of a memory control group: which event exceeded it, and with what.

use hksim_linux_mm::MemoryLimit;

use super::{Accounting, Reason};

/// The request that exceeded the limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitExceeded {
    /// Events performed before it.
    events: u64,
    /// Why a touch installed a page; `None` for an OS call.
    reason: Option<Reason>,
}

impl Accounting {
    /// Compares the memory with the limit after an install by a touch, which had a reason, or after an OS call.
    pub(super) fn note_limit(&mut self, reason: Option<Reason>) {
        if self.kernel.config().memory_limit_bytes.is_none() {
            return;
        }
        self.kernel.note_charge();
        if self.limit_exceeded.is_none() && self.kernel.group_pressure().is_some_and(|met| met.out_of_memory.is_some())
        {
            self.limit_exceeded = Some(LimitExceeded { events: self.events, reason });
        }
    }

    /// The program under its limit; `None` without a limit. Its time, and the call, are not known here.
    pub(crate) fn memory_limit(&self) -> Option<MemoryLimit> {
        let limit_bytes = self.kernel.config().memory_limit_bytes?;
        let limit = MemoryLimit::of(limit_bytes, self.kernel.group_pressure()?);
        Some(match self.limit_exceeded {
            None => limit,
            Some(LimitExceeded { events, reason }) => MemoryLimit {
                event: Some(events + 1),
                by: Some(reason.map_or("os_call", Reason::word).to_string()),
                ..limit
            },
        })
    }
}

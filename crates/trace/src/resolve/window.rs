//! How long the merge waits.

/// How long a thread may wait for another thread's event. Whichever limit is passed first ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// Events pushed since the wait began.
    pub events: u64,
    /// Nanoseconds that an allocation waits until its address is dead. A realloc is stamped before the
    /// call or after it, so the other stamp is off by the whole call.
    pub alloc_wait_ns: u64,
    /// Nanoseconds that a free waits until its address is live. Shorter, as only the skew between the clocks of
    /// two cores matters here, and an unknown free must not wait for the next block at its address.
    pub free_wait_ns: u64,
    /// Nanoseconds that a free is held back, unless its thread goes on or its address is given out before. A free is
    /// stamped before the call; a clock that runs a little ahead of it would make it end the block before the right one.
    /// 0 where the order of frees is certain.
    pub free_delay_ns: u64,
}

impl WaitLimits {
    /// Where the order is certain, or there is one thread only: nothing waits.
    pub const CERTAIN: WaitLimits = WaitLimits { events: 0, alloc_wait_ns: 0, free_wait_ns: 0, free_delay_ns: 0 };

    /// For stamps taken on several cores without a lock.
    pub const UNLOCKED_STAMPS: WaitLimits =
        WaitLimits { events: 4096, alloc_wait_ns: 1_000_000, free_wait_ns: 10_000, free_delay_ns: 2_000 };

    /// 4096 events; 1 ms; 10 us; frees are not held. The largest step back measured between two cores was 350 ns.
    pub const DEFAULT: WaitLimits = WaitLimits { free_delay_ns: 0, ..WaitLimits::UNLOCKED_STAMPS };
}

impl WaitLimits {
    pub(super) fn wait_policy(&self) -> WaitPolicy {
        if *self == WaitLimits::CERTAIN { WaitPolicy::GiveUp } else { WaitPolicy::Wait }
    }
}

impl Default for WaitLimits {
    fn default() -> Self {
        WaitLimits::DEFAULT
    }
}

/// How an event that cannot happen yet is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    /// Let it wait.
    Wait,
    /// It waited long enough: make it happen.
    GiveUp,
}

//! How long the merge waits for events of other threads.

/// How long a thread may wait for another thread's event. The limit reached first ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// Events pushed since the wait began.
    pub events: u64,
    /// Nanoseconds that an allocation waits for its address to be freed. A realloc has one timestamp, taken before or
    /// after the call, so as a free or as an allocation it can be off by the duration of the call.
    pub alloc_wait_ns: u64,
    /// Nanoseconds that a free waits for its address to be allocated. Shorter, as only the clock skew between
    /// two cores matters here, and a free of an unknown block must not wait for the next block at its address.
    pub free_wait_ns: u64,
    /// Nanoseconds that a free is delayed, unless its thread's next event or a reuse of its address comes first. A free
    /// is stamped before the call, so with clock skew it could end the previous block at its address. 0 if the order of
    /// frees is certain.
    pub free_delay_ns: u64,
}

impl WaitLimits {
    /// For sources whose order is certain or that have one thread: nothing waits.
    pub const CERTAIN: WaitLimits = WaitLimits { events: 0, alloc_wait_ns: 0, free_wait_ns: 0, free_delay_ns: 0 };

    /// For timestamps taken on several cores without a lock.
    pub const UNLOCKED_STAMPS: WaitLimits =
        WaitLimits { events: 4096, alloc_wait_ns: 1_000_000, free_wait_ns: 10_000, free_delay_ns: 2_000 };

    /// 4096 events; 1 ms; 10 us; frees are not delayed. The largest clock skew measured between two cores was 350 ns.
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

/// What to do with an event that cannot be resolved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPolicy {
    /// Let it wait.
    Wait,
    /// It waited long enough: resolve it anyway.
    GiveUp,
}

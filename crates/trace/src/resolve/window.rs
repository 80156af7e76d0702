//! How long the merge waits.

/// How long a thread may wait for another thread's event. Whichever limit is passed first ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Events pushed since the wait began.
    pub events: u64,
    /// Nanoseconds that an allocation waits until its address is dead. A realloc is stamped before the
    /// call or after it, so the other stamp is off by the whole call.
    pub death_ns: u64,
    /// Nanoseconds that a free waits until its address is live. Shorter, as only the skew between the clocks of
    /// two cores matters here, and an unknown free must not wait for the next block at its address.
    pub birth_ns: u64,
    /// Nanoseconds that a free is held back, unless its thread goes on or its address is given out before. A free is
    /// stamped before the call; a clock that runs a little ahead of it would make it end the block before the right one.
    /// 0 where the order of frees is certain.
    pub hold_ns: u64,
}

impl Window {
    /// Where the order is certain, or there is one thread only: nothing waits.
    pub const CERTAIN: Window = Window { events: 0, death_ns: 0, birth_ns: 0, hold_ns: 0 };

    /// For stamps taken on several cores without a lock.
    pub const UNLOCKED_STAMPS: Window = Window { events: 4096, death_ns: 1_000_000, birth_ns: 10_000, hold_ns: 2_000 };

    /// 4096 events; 1 ms; 10 us; frees are not held. The largest step back measured between two cores was 350 ns.
    pub const DEFAULT: Window = Window { hold_ns: 0, ..Window::UNLOCKED_STAMPS };
}

impl Window {
    pub(super) fn patience(&self) -> Patience {
        if *self == Window::CERTAIN { Patience::GiveUp } else { Patience::Park }
    }
}

impl Default for Window {
    fn default() -> Self {
        Window::DEFAULT
    }
}

/// How an event that cannot happen yet is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Let it wait.
    Park,
    /// It waited long enough: make it happen.
    GiveUp,
}

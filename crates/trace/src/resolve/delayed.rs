//! Delayed frees: at most one per thread.
//!
//! A delayed free is admitted before any of the following:
//! 1. an event later than the free by more than the delay ([`super::WaitLimits::free_delay_ns`]);
//! 2. the next event of its thread;
//! 3. the allocation of its address, if that address is still live.

use super::RawEvent;
use std::collections::VecDeque;

/// The delayed frees, in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct DelayedFrees {
    frees: VecDeque<RawEvent>,
}

impl DelayedFrees {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frees.is_empty()
    }

    #[inline]
    pub(super) fn add(&mut self, free: RawEvent) {
        self.frees.push_back(free);
    }

    /// Number of delayed frees.
    pub(super) fn len(&self) -> usize {
        self.frees.len()
    }

    /// All delayed frees.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RawEvent> + '_ {
        self.frees.iter()
    }

    /// Replaces all delayed frees by these, latest first.
    pub(super) fn replace(&mut self, frees: impl Iterator<Item = RawEvent>) {
        self.frees.clear();
        frees.for_each(|free| self.frees.push_front(free));
    }

    /// Rule 1: takes the oldest free if it is due.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, free_delay_ns: u64) -> Option<RawEvent> {
        let is_due = due_ns(self.frees.front()?.time_ns, free_delay_ns) < now_ns;
        if is_due { self.frees.pop_front() } else { None }
    }

    /// Rule 2: takes the free of the thread with this raw number.
    #[inline]
    pub(super) fn take_of_thread(&mut self, raw_thread: u32) -> Option<RawEvent> {
        self.take_first(|free| free.thread == raw_thread)
    }

    /// Rule 3: takes the oldest free of `address`.
    #[inline]
    pub(super) fn take_at(&mut self, address: u64) -> Option<RawEvent> {
        self.take_first(|free| free.op.freed() == Some(address))
    }

    /// Takes the oldest free for which `wanted` holds.
    #[inline]
    pub(super) fn take_first(&mut self, wanted: impl Fn(&RawEvent) -> bool) -> Option<RawEvent> {
        let place = self.frees.iter().position(wanted)?;
        self.frees.remove(place)
    }
}

/// The last time up to which a free is delayed.
#[inline]
pub(super) fn due_ns(free_ns: u64, free_delay_ns: u64) -> u64 {
    free_ns.saturating_add(free_delay_ns)
}

//! Delayed frees: at most one per thread, of an ordinary address.
//!
//! A delayed free is admitted before any of the following:
//! 1. an event later than the free by more than the delay ([`super::WaitLimits::free_delay_ns`]);
//! 2. the next event of its thread;
//! 3. the allocation of its address, if that address is still live.

use super::Plain;
use std::collections::VecDeque;

/// The delayed frees, in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct DelayedFrees {
    frees: VecDeque<Plain>,
}

impl DelayedFrees {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.frees.is_empty()
    }

    /// Number of delayed frees.
    pub(super) fn len(&self) -> usize {
        self.frees.len()
    }

    /// All delayed frees.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Plain> {
        self.frees.iter()
    }

    #[inline]
    pub(super) fn add(&mut self, free: Plain) {
        self.frees.push_back(free);
    }

    /// Replaces all delayed frees by these, latest first.
    pub(super) fn replace(&mut self, frees: impl Iterator<Item = Plain>) {
        self.frees.clear();
        frees.for_each(|free| self.frees.push_front(free));
    }

    /// Rule 1: takes the oldest free if it is due.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, free_delay_ns: u64) -> Option<Plain> {
        let is_due = due_ns(self.frees.front()?.time_ns, free_delay_ns) < now_ns;
        if is_due { self.frees.pop_front() } else { None }
    }

    /// Rule 2: takes the free of the thread with this raw number.
    #[inline]
    pub(super) fn take_of_thread(&mut self, thread: u32) -> Option<Plain> {
        let place = self.frees.iter().position(|free| free.thread == thread)?;
        self.frees.remove(place)
    }

    /// Rule 3: takes the oldest free of `address` if that is live.
    #[inline]
    pub(super) fn take_at(&mut self, address: u64, is_live: impl FnOnce(u64) -> bool) -> Option<Plain> {
        let place = self.frees.iter().position(|free| free.address == address)?;
        if is_live(address) { self.frees.remove(place) } else { None }
    }

    /// Takes the oldest free.
    pub(super) fn take_first(&mut self) -> Option<Plain> {
        self.frees.pop_front()
    }
}

/// The last time up to which a free is delayed.
#[inline]
pub(super) fn due_ns(free_ns: u64, free_delay_ns: u64) -> u64 {
    free_ns.saturating_add(free_delay_ns)
}

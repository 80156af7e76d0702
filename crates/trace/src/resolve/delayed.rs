//! Delayed frees: at most one per thread.
//!
//! A delayed free is admitted before any of the following:
//! 1. an event later than the free by more than the delay ([`super::WaitLimits::free_delay_ns`]);
//! 2. the next event of its thread;
//! 3. the allocation of its address, if that address is still live.

use super::plain::{Plain, PlainCall};
use super::{RawEvent, RawOp};
use std::collections::VecDeque;

/// A free. It has no call site, as it does not request memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) time_ns: u64,
    pub(super) address: u64,
    /// Raw thread number.
    pub(super) thread: u32,
}

impl Free {
    /// The free as a [`RawEvent`].
    #[inline(always)]
    pub(super) fn raw(self) -> RawEvent {
        RawEvent::new(self.time_ns, self.thread, RawOp::Free { address: self.address })
    }

    /// The free as a [`Plain`]; `None` if its address is not ordinary.
    pub(super) fn plain(self) -> Option<Plain> {
        Plain::new(self.time_ns, self.thread, PlainCall::Free, self.address, 0)
    }
}

impl From<&Plain> for Free {
    fn from(&Plain { time_ns, address, thread, .. }: &Plain) -> Self {
        Free { time_ns, address, thread }
    }
}

/// The delayed frees, in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct DelayedFrees {
    frees: VecDeque<Free>,
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
    pub(super) fn iter(&self) -> impl Iterator<Item = Free> + '_ {
        self.frees.iter().copied()
    }

    #[inline]
    pub(super) fn add(&mut self, free: Free) {
        self.frees.push_back(free);
    }

    /// Replaces all delayed frees by these, latest first.
    pub(super) fn replace(&mut self, frees: impl Iterator<Item = Free>) {
        self.frees.clear();
        frees.for_each(|free| self.frees.push_front(free));
    }

    /// Rule 1: takes the oldest free if it is due.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, free_delay_ns: u64) -> Option<Free> {
        let is_due = due_ns(self.frees.front()?.time_ns, free_delay_ns) < now_ns;
        if is_due { self.frees.pop_front() } else { None }
    }

    /// Rule 2: takes the free of the thread with this raw number.
    #[inline]
    pub(super) fn take_of_thread(&mut self, thread: u32) -> Option<Free> {
        let place = self.frees.iter().position(|free| free.thread == thread)?;
        self.frees.remove(place)
    }

    /// Rule 3: takes the oldest free of `address` if that is live.
    #[inline]
    pub(super) fn take_at(&mut self, address: u64, is_live: impl FnOnce(u64) -> bool) -> Option<Free> {
        let place = self.frees.iter().position(|free| free.address == address)?;
        if is_live(address) { self.frees.remove(place) } else { None }
    }

    /// Takes the oldest free.
    pub(super) fn take_first(&mut self) -> Option<Free> {
        self.frees.pop_front()
    }
}

/// The last time up to which a free is delayed.
#[inline]
pub(super) fn due_ns(free_ns: u64, free_delay_ns: u64) -> u64 {
    free_ns.saturating_add(free_delay_ns)
}

//! Delayed frees: at most one per thread.

use super::plain::{Plain, PlainCall};
use super::{RawEvent, RawOp};
use std::collections::VecDeque;

/// A delayed free, stored as plain fields; the event is rebuilt when it is taken. It needs no call site, as it does not request
/// memory.
#[derive(Debug)]
struct Entry {
    thread: usize,
    address: u64,
    time_ns: u64,
    raw_thread: u32,
}

impl Entry {
    #[inline(always)]
    fn free(&self) -> (usize, RawEvent) {
        (self.thread, RawEvent::new(self.time_ns, self.raw_thread, RawOp::Free { address: self.address }))
    }
}

/// The delayed frees, in order of timestamps.
#[derive(Debug, Default)]
pub(super) struct DelayedFrees {
    entries: VecDeque<Entry>,
}

impl DelayedFrees {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(super) fn add(&mut self, thread: usize, address: u64, free: &RawEvent) {
        let &RawEvent { time_ns, thread: raw_thread, .. } = free;
        self.entries.push_back(Entry { thread, address, time_ns, raw_thread });
    }

    /// All delayed frees; `None` for a free of an address that is not ordinary.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<Plain>> + '_ {
        let plain = |entry: &Entry| Plain::new(entry.time_ns, entry.raw_thread, PlainCall::Free, entry.address, 0);
        self.entries.iter().map(plain)
    }

    /// Replaces all delayed frees by these, each with the index of its thread.
    pub(super) fn replace(&mut self, frees: impl Iterator<Item = (usize, Plain)>) {
        let entry = |(thread, free): (usize, Plain)| {
            let Plain { time_ns, address, thread: raw_thread, .. } = free;
            Entry { thread, address, time_ns, raw_thread }
        };
        self.entries.clear();
        self.entries.extend(frees.map(entry));
    }

    /// Takes the oldest free if it was delayed longer than `free_delay_ns`, or is of `thread`, whose next event has come.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, free_delay_ns: u64, thread: usize) -> Option<(usize, RawEvent)> {
        let first = self.entries.front()?;
        if first.time_ns.saturating_add(free_delay_ns) < now_ns || first.thread == thread {
            let free = first.free();
            self.entries.pop_front();
            return Some(free);
        }
        None
    }

    /// Takes the free of `thread`.
    #[inline]
    pub(super) fn take_of_thread(&mut self, thread: usize) -> Option<(usize, RawEvent)> {
        let own = self.entries.iter().position(|entry| entry.thread == thread)?;
        self.entries.remove(own).map(|entry| entry.free())
    }

    /// Whether a free of `address` is delayed.
    #[inline]
    pub(super) fn contains(&self, address: u64) -> bool {
        self.entries.iter().any(|entry| entry.address == address)
    }

    /// Takes the oldest free of `address`.
    pub(super) fn take_at(&mut self, address: u64) -> Option<(usize, RawEvent)> {
        let first = self.entries.iter().position(|entry| entry.address == address)?;
        self.entries.remove(first).map(|entry| entry.free())
    }

    /// Takes the oldest free.
    pub(super) fn take_first(&mut self) -> Option<(usize, RawEvent)> {
        self.entries.pop_front().map(|entry| entry.free())
    }
}

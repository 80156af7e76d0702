//! Frees that are held back for a moment, one a thread at the most.

use super::RawEvent;
use std::collections::VecDeque;

struct Entry {
    thread: usize,
    address: u64,
    until_ns: u64,
    free: RawEvent,
}

/// The frees held back, in order of their stamps.
#[derive(Default)]
pub(super) struct Held {
    entries: VecDeque<Entry>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| &entry.free)).finish()
    }
}

impl Held {
    #[inline]
    pub(super) fn add(&mut self, thread: usize, address: u64, free: RawEvent, hold_ns: u64) {
        self.entries.push_back(Entry { thread, address, until_ns: free.time_ns.saturating_add(hold_ns), free });
    }

    /// Takes a free that cannot be held any longer before an event at `now_ns` of `thread` that gives out `reused`, an
    /// address still live: one held long enough, that thread's own, or else the oldest of that address.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, thread: usize, reused: Option<u64>) -> Option<(usize, RawEvent)> {
        let first = self.entries.front()?;
        let due = if first.until_ns < now_ns {
            0
        } else if let Some(own) = self.entries.iter().position(|entry| entry.thread == thread) {
            own
        } else {
            let reused = reused?;
            self.entries.iter().position(|entry| entry.address == reused)?
        };
        self.entries.remove(due).map(|entry| (entry.thread, entry.free))
    }

    /// Takes the oldest.
    pub(super) fn take_first(&mut self) -> Option<(usize, RawEvent)> {
        self.entries.pop_front().map(|entry| (entry.thread, entry.free))
    }
}

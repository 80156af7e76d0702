//! Frees that are held back for a moment, one a thread at the most.

use super::{RawEvent, RawOp};
use crate::event::SiteId;
use std::collections::VecDeque;

/// A free, in words of their own: put together again only when it is taken.
#[derive(Debug)]
struct Entry {
    thread: usize,
    address: u64,
    until_ns: u64,
    time_ns: u64,
    raw_thread: u32,
    site: SiteId,
}

impl Entry {
    #[inline(always)]
    fn free(&self) -> (usize, RawEvent) {
        let op = RawOp::Free { address: self.address };
        (self.thread, RawEvent { time_ns: self.time_ns, thread: self.raw_thread, site: self.site, op })
    }
}

/// The frees held back, in order of their stamps.
#[derive(Debug, Default)]
pub(super) struct Held {
    entries: VecDeque<Entry>,
}

impl Held {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(super) fn add(&mut self, thread: usize, address: u64, free: &RawEvent, hold_ns: u64) {
        let &RawEvent { time_ns, thread: raw_thread, site, .. } = free;
        let until_ns = time_ns.saturating_add(hold_ns);
        self.entries.push_back(Entry { thread, address, until_ns, time_ns, raw_thread, site });
    }

    /// Takes the oldest if it was held long enough at `now_ns`, or is of `thread`, whose next event has come.
    #[inline]
    pub(super) fn take_due(&mut self, now_ns: u64, thread: usize) -> Option<(usize, RawEvent)> {
        let first = self.entries.front()?;
        if first.until_ns < now_ns || first.thread == thread {
            let free = first.free();
            self.entries.pop_front();
            return Some(free);
        }
        None
    }

    /// Takes the one of `thread`.
    #[inline]
    pub(super) fn take_of(&mut self, thread: usize) -> Option<(usize, RawEvent)> {
        let own = self.entries.iter().position(|entry| entry.thread == thread)?;
        self.entries.remove(own).map(|entry| entry.free())
    }

    /// Whether a free of `address` is held back.
    #[inline]
    pub(super) fn holds(&self, address: u64) -> bool {
        self.entries.iter().any(|entry| entry.address == address)
    }

    /// Takes the oldest of `address`.
    pub(super) fn take_at(&mut self, address: u64) -> Option<(usize, RawEvent)> {
        let first = self.entries.iter().position(|entry| entry.address == address)?;
        self.entries.remove(first).map(|entry| entry.free())
    }

    /// Takes the oldest.
    pub(super) fn take_first(&mut self) -> Option<(usize, RawEvent)> {
        self.entries.pop_front().map(|entry| entry.free())
    }
}

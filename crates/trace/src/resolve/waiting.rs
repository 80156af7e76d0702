//! Threads that wait for an address to be allocated or freed.

use super::WaitLimits;
use std::collections::VecDeque;

/// What a waiting thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The allocation of the address.
    Alloc(u64),
    /// The free of the address.
    Free(u64),
}

/// A position in the stream of raw events: how many have arrived, and the timestamp of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Now {
    pub(super) event: u64,
    pub(super) time_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    thread: usize,
    address: u64,
    since: Now,
}

/// The waiting threads, longest wait first. At most one entry per thread, usually none.
#[derive(Debug, Default)]
pub(super) struct WaitingThreads {
    for_alloc: VecDeque<Entry>,
    for_free: VecDeque<Entry>,
}

impl WaitingThreads {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.for_alloc.is_empty() && self.for_free.is_empty()
    }

    pub(super) fn add(&mut self, thread: usize, awaited: Awaited, since: Now) {
        match awaited {
            Awaited::Alloc(address) => self.for_alloc.push_back(Entry { thread, address, since }),
            Awaited::Free(address) => self.for_free.push_back(Entry { thread, address, since }),
        }
    }

    /// A thread that has waited longer than the limits allow, and what it waits for.
    pub(super) fn overdue(&self, now: Now, limits: &WaitLimits) -> Option<(usize, Awaited)> {
        let first = |queue: &VecDeque<Entry>, limit_ns: u64| {
            let &entry = queue.front()?;
            let since = entry.since;
            let overdue = now.event - since.event > limits.events || now.time_ns - since.time_ns > limit_ns;
            overdue.then_some(entry)
        };
        let alloc =
            first(&self.for_alloc, limits.free_wait_ns).map(|entry| (entry.thread, Awaited::Alloc(entry.address)));
        let free =
            || first(&self.for_free, limits.alloc_wait_ns).map(|entry| (entry.thread, Awaited::Free(entry.address)));
        alloc.or_else(free)
    }

    /// The waiting threads.
    pub(super) fn threads(&self) -> impl Iterator<Item = usize> + '_ {
        self.for_alloc.iter().chain(&self.for_free).map(|entry| entry.thread)
    }

    /// Removes a thread.
    pub(super) fn remove(&mut self, thread: usize) {
        self.for_alloc.retain(|entry| entry.thread != thread);
        self.for_free.retain(|entry| entry.thread != thread);
    }

    /// Removes a thread that has waited for this event since before `time_ns`.
    pub(super) fn take_stale(&mut self, awaited: Awaited, time_ns: u64) -> Option<usize> {
        let (queue, address) = match awaited {
            Awaited::Alloc(address) => (&mut self.for_alloc, address),
            Awaited::Free(address) => (&mut self.for_free, address),
        };
        let place = queue.iter().position(|entry| entry.address == address && entry.since.time_ns < time_ns)?;
        queue.remove(place).map(|entry| entry.thread)
    }

    /// Removes the thread that has waited longest.
    pub(super) fn take_oldest(&mut self) -> Option<usize> {
        let since = |queue: &VecDeque<Entry>| queue.front().map_or(u64::MAX, |entry| entry.since.event);
        let alloc_first = since(&self.for_alloc) <= since(&self.for_free);
        let queue = if alloc_first { &mut self.for_alloc } else { &mut self.for_free };
        queue.pop_front().map(|entry| entry.thread)
    }

    /// Moves the threads that wait for this event to `woken`, longest wait first.
    #[inline]
    pub(super) fn wake(&mut self, happened: Awaited, woken: &mut VecDeque<usize>) {
        let (queue, address) = match happened {
            Awaited::Alloc(address) => (&mut self.for_alloc, address),
            Awaited::Free(address) => (&mut self.for_free, address),
        };
        if !queue.is_empty() {
            queue.retain(|entry| {
                if entry.address == address {
                    woken.push_back(entry.thread);
                }
                entry.address != address
            });
        }
    }
}

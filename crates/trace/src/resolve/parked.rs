//! Threads that wait for an address to be born or to die.

use super::WaitLimits;
use std::collections::VecDeque;

/// What a waiting thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The address becomes live.
    InitialTouch(u64),
    /// The address becomes dead.
    Death(u64),
}

/// A point in the stream of raw events: how many have arrived, and the time stamp of the last.
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

/// The waiting threads, longest wait first. There are few: at most one entry per thread, mostly none.
#[derive(Debug, Default)]
pub(super) struct Parked {
    births: VecDeque<Entry>,
    deaths: VecDeque<Entry>,
}

impl Parked {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.births.is_empty() && self.deaths.is_empty()
    }

    pub(super) fn add(&mut self, thread: usize, awaited: Awaited, since: Now) {
        match awaited {
            Awaited::InitialTouch(address) => self.births.push_back(Entry { thread, address, since }),
            Awaited::Death(address) => self.deaths.push_back(Entry { thread, address, since }),
        }
    }

    /// A thread that waits for longer than the window allows, and what for.
    pub(super) fn overdue(&self, now: Now, window: &WaitLimits) -> Option<(usize, Awaited)> {
        let first = |queue: &VecDeque<Entry>, limit_ns: u64| {
            let &entry = queue.front()?;
            let since = entry.since;
            let overdue = now.event - since.event > window.events || now.time_ns - since.time_ns > limit_ns;
            overdue.then_some(entry)
        };
        let initial_touch =
            first(&self.births, window.free_wait_ns).map(|entry| (entry.thread, Awaited::InitialTouch(entry.address)));
        let death =
            || first(&self.deaths, window.alloc_wait_ns).map(|entry| (entry.thread, Awaited::Death(entry.address)));
        initial_touch.or_else(death)
    }

    /// The waiting threads.
    pub(super) fn threads(&self) -> impl Iterator<Item = usize> + '_ {
        self.births.iter().chain(&self.deaths).map(|entry| entry.thread)
    }

    /// Removes a thread.
    pub(super) fn remove(&mut self, thread: usize) {
        self.births.retain(|entry| entry.thread != thread);
        self.deaths.retain(|entry| entry.thread != thread);
    }

    /// Removes a thread that has waited for this since before `time_ns`.
    pub(super) fn take_outlived(&mut self, awaited: Awaited, time_ns: u64) -> Option<usize> {
        let (queue, address) = match awaited {
            Awaited::InitialTouch(address) => (&mut self.births, address),
            Awaited::Death(address) => (&mut self.deaths, address),
        };
        let place = queue.iter().position(|entry| entry.address == address && entry.since.time_ns < time_ns)?;
        queue.remove(place).map(|entry| entry.thread)
    }

    /// Removes the thread that waits longest.
    pub(super) fn take_oldest(&mut self) -> Option<usize> {
        let since = |queue: &VecDeque<Entry>| queue.front().map_or(u64::MAX, |entry| entry.since.event);
        let births_first = since(&self.births) <= since(&self.deaths);
        let queue = if births_first { &mut self.births } else { &mut self.deaths };
        queue.pop_front().map(|entry| entry.thread)
    }

    /// Moves the threads that wait for this into `woken`, longest wait first.
    #[inline]
    pub(super) fn wake(&mut self, happened: Awaited, woken: &mut VecDeque<usize>) {
        let (queue, address) = match happened {
            Awaited::InitialTouch(address) => (&mut self.births, address),
            Awaited::Death(address) => (&mut self.deaths, address),
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

//! Threads that wait for an address to be allocated or freed, and the ends of their waits.

use super::wait_limits::WaitPolicy;
use super::{EventSink, RawEvent, RawOp, Resolver, WaitLimits};
use crate::error::TraceError;
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

impl Resolver {
    #[cold]
    pub(super) fn give_up_overdue(&mut self, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some((thread, awaited)) = self.waiting.overdue(self.now, &self.limits) {
            // The awaited event may be in the queue of another waiting thread: then end that thread's wait.
            let thread = self.thread_holding(thread, awaited).unwrap_or(thread);
            self.waiting.remove(thread);
            self.give_up(thread, sink)?;
        }
        Ok(())
    }

    /// The thread other than `waiting` that has the awaited event in its queue.
    fn thread_holding(&self, waiting: usize, awaited: Awaited) -> Option<usize> {
        let is_awaited = |raw: &RawEvent| match awaited {
            Awaited::Alloc(address) => raw.op.allocated() == Some(address),
            Awaited::Free(address) => raw.op.freed() == Some(address),
        };
        let mut others = self.waiting.threads().filter(|&thread| thread != waiting);
        others.find(|&thread| self.threads.list[thread].queue.iter().any(is_awaited))
    }

    /// Ends the waits for an event of this address that `op` cannot satisfy, because it is stamped too late.
    ///
    /// A free is stamped before the call and an allocation after it. So the free that an allocation waits for is
    /// stamped before that allocation, up to the skew between clocks, and likewise the allocation that a free waits
    /// for. If `op` were accepted in its place, every later block at this address would be mistaken for the one before
    /// or after it.
    #[cold]
    pub(super) fn give_up_stale(
        &mut self,
        time_ns: u64,
        op: &RawOp,
        sink: &mut impl EventSink,
    ) -> Result<(), TraceError> {
        let awaited = match (*op, op.allocated()) {
            (RawOp::Free { address }, _) => Awaited::Free(address),
            (RawOp::Alloc { .. }, Some(address)) => Awaited::Alloc(address),
            _ => return Ok(()),
        };
        let skew_ns = self.limits.free_delay_ns;
        while skew_ns > 0
            && let Some(thread) = self.waiting.take_stale(awaited, time_ns.saturating_sub(skew_ns))
        {
            self.give_up(thread, sink)?;
        }
        Ok(())
    }

    /// Resolves the waiting event of a thread although the event that it waits for has not come.
    pub(super) fn give_up(&mut self, thread: usize, sink: &mut impl EventSink) -> Result<(), TraceError> {
        if let Some(raw) = self.threads.list[thread].queue.pop_front() {
            self.run(thread, &raw, WaitPolicy::GiveUp, sink)?;
        }
        self.woken.push_back(thread);
        self.run_woken(sink)
    }

    /// Resolves the queued events of woken threads up to the next one that must wait. This may wake other threads.
    #[cold]
    pub(super) fn run_woken(&mut self, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some(thread) = self.woken.pop_front() {
            while let Some(&raw) = self.threads.list[thread].queue.front() {
                let overtaken = self.emitted_ns > raw.time_ns;
                if let Some(awaited) = self.run(thread, &raw, WaitPolicy::Wait, sink)? {
                    self.waiting.add(thread, awaited, self.now);
                    break;
                }
                self.quality.parked += overtaken as u64;
                self.threads.list[thread].queue.pop_front();
            }
        }
        Ok(())
    }
}

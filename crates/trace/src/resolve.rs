//! From addresses to objects: the merge that recorders and importers share. It reorders events where needed.
//!
//! Events arrive sorted by timestamp. A free is stamped before the real call and an allocation after it. Even so, the
//! reuse of an address sometimes appears before its free: timestamps of two cores differ by up to 350 ns, and some
//! recorders log a realloc only after it returned. So the merge keeps the order within each thread and lets a thread
//! wait: an allocation until its address is free, a free until its address is live. When a thread has waited longer
//! than [`WaitLimits`] allows, the merge gives up: what the thread waits for was not recorded.
//!
//! A free that is stamped too early can also find its address live with *the previous block* and end that block. Then
//! the free that really ended the previous block waits in vain. So frees are delayed briefly: until their thread's next
//! event, until their address is returned again, or until a time limit.
//!
//! Every event takes three steps. `malloc`, `calloc` and `free`, nearly all events, have a fast path with the same
//! results:
//!
//! | Step | All events | Batches of common calls (`batch.rs`) |
//! |---|---|---|
//! | delay frees | `delayed.rs` | `admission.rs` |
//! | let threads wait | `waiting.rs` | a batch ends before a call that must wait |
//! | find the object, emit | `ops.rs` | `live_objects.rs` |

mod address_map;
mod admission;
mod batch;
mod delayed;
mod event_sink;
mod live_objects;
mod objects;
mod ops;
mod plain;
mod raw;
mod recycler;
mod threads;
mod wait_limits;
mod waiting;

pub use event_sink::EventSink;
pub use plain::{Plain, PlainCall, Resolved};
pub use raw::{RawEvent, RawOp};
pub use wait_limits::WaitLimits;

use crate::error::TraceError;
use crate::header::Quality;
use batch::BatchState;
use delayed::DelayedFrees;
use live_objects::LiveObjects;
use std::collections::VecDeque;
use threads::Threads;
use wait_limits::WaitPolicy;
use waiting::{Now, WaitingThreads};

/// The merge. Push events with [`Resolver::push`] or [`Resolver::take_plain`], then call [`Resolver::finish`].
///
/// Emitted times never decrease: an event that waited gets the time of the one it waited for. Threads are
/// renumbered in order of their first emitted event.
#[derive(Debug)]
pub struct Resolver {
    limits: WaitLimits,
    wait_policy: WaitPolicy,
    live: LiveObjects,
    threads: Threads,
    waiting: WaitingThreads,
    /// Threads to try again, as the address they wait for has changed.
    woken: VecDeque<usize>,
    delayed: DelayedFrees,
    batch: BatchState,
    now: Now,
    /// Time of the last emitted event.
    emitted_ns: u64,
    quality: Quality,
}

impl Resolver {
    /// A merge with no live object.
    pub fn new(limits: WaitLimits) -> Self {
        Resolver {
            limits,
            wait_policy: limits.wait_policy(),
            live: LiveObjects::new(),
            threads: Threads::new(),
            waiting: WaitingThreads::default(),
            woken: VecDeque::new(),
            delayed: DelayedFrees::default(),
            batch: BatchState::new(),
            now: Now::default(),
            emitted_ns: 0,
            quality: Quality::default(),
        }
    }

    /// Changes [`WaitLimits::free_delay_ns`] from now on.
    pub fn delay_frees(&mut self, free_delay_ns: u64) {
        self.limits.free_delay_ns = free_delay_ns;
    }

    /// Takes the next event, in order of timestamps, and emits the events that are ready.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    #[inline]
    pub fn push(&mut self, raw: RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        self.take(&raw, sink)
    }

    /// As [`Resolver::push`], by reference: copying an event costs more than a lookup.
    ///
    /// # Errors
    /// As for [`Resolver::push`].
    #[inline(always)]
    pub fn take(&mut self, raw: &RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        self.now = Now { event: self.now.event + 1, time_ns: self.now.time_ns.max(raw.time_ns) };
        if !self.waiting.is_empty() {
            self.give_up_overdue(sink)?;
            self.give_up_stale(raw.time_ns, &raw.op, sink)?;
        }
        let thread = self.threads.index(raw.thread)?;
        if self.limits.free_delay_ns > 0 {
            if !self.delayed.is_empty() {
                self.admit_delayed(raw, sink)?;
            }
            if let RawOp::Free { address } = raw.op
                && self.threads.list[thread].queue.is_empty()
                && let Some(free) = Plain::new(raw.time_ns, raw.thread, PlainCall::Free, address, 0)
            {
                self.delayed.add(free);
                return Ok(());
            }
        }
        self.admit(thread, raw, sink)
    }

    /// Admits the delayed frees that must come before `raw`.
    #[inline]
    fn admit_delayed(&mut self, raw: &RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        while let Some(free) = self.delayed.take_due(self.now.time_ns, self.limits.free_delay_ns) {
            self.admit_free(free, sink)?;
        }
        if let Some(free) = self.delayed.take_of_thread(raw.thread) {
            self.admit_free(free, sink)?;
        }
        while let Some(address) = raw.op.allocated()
            && let Some(free) = self.delayed.take_at(address, |address| self.live.get(address).is_some())
        {
            self.admit_free(free, sink)?;
        }
        Ok(())
    }

    fn admit_free(&mut self, free: Plain, sink: &mut impl EventSink) -> Result<(), TraceError> {
        let thread = self.threads.index(free.thread)?;
        self.admit(thread, &free.raw(), sink)
    }

    /// Resolves the next event of a thread, or lets it wait.
    ///
    /// Rare paths get a copy of the event, so that the event itself can stay in registers.
    #[inline(always)]
    fn admit(&mut self, thread: usize, raw: &RawEvent, sink: &mut impl EventSink) -> Result<(), TraceError> {
        if !self.threads.list[thread].queue.is_empty() {
            self.enqueue(thread, *raw);
            return Ok(());
        }
        match self.run(thread, raw, self.wait_policy, sink)? {
            Some(awaited) => {
                self.enqueue(thread, *raw);
                self.waiting.add(thread, awaited, self.now);
            }
            None if self.woken.is_empty() => {}
            None => self.run_woken(sink)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn enqueue(&mut self, thread: usize, raw: RawEvent) {
        self.threads.list[thread].queue.push_back(raw);
    }

    /// Whether a block is live at the address after the events emitted so far.
    pub fn is_live(&self, address: u64) -> bool {
        self.live.get(address).is_some()
    }

    /// Emits all events that still wait. Returns the counts of what was guessed or repaired.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    pub fn finish(mut self, sink: &mut impl EventSink) -> Result<Quality, TraceError> {
        while let Some(free) = self.delayed.take_first() {
            self.admit_free(free, sink)?;
        }
        while let Some(thread) = self.waiting.take_oldest() {
            self.give_up(thread, sink)?;
        }
        Ok(self.quality)
    }
}

//! The fast path: common calls in batches, as long as no thread waits.
//!
//! Whether the next call allocates or frees is unpredictable, and a mispredicted branch costs as much as the rest of a
//! call. So the loops have no data-dependent branch: they compute both results and select one.
//!
//! A batch has two stages, each a specialisation of the general path with the same results:
//! 1. [`AdmissionOrder::arrange`] applies the rules for delayed frees (`delayed.rs`).
//! 2. [`LiveObjects::apply_known`] finds the objects. New addresses and threads use [`LiveObjects::allocate`] and
//!    [`LiveObjects::free`], as the general path does.
//!
//! Invariants:
//! - No thread waits before or during a batch. So no queue, time limit or awaited address has to be checked.
//! - A batch ends before the first call that cannot happen at once: an allocation of a live address, or a free of an
//!   address that is not live. [`Resolver::take`] takes that call, in the same state as without batches.

use super::admission::{AdmissionOrder, BATCH_CALLS_MAX};
use super::plain::{Plain, Resolved};
use super::{EventSink, Resolver};
use crate::error::TraceError;

/// A batch of fewer calls costs more than it saves.
const BATCH_CALLS_MIN: usize = 8;
/// Calls taken one by one after such a batch.
const PAUSE_CALLS: u32 = 64;

/// State kept from one batch to the next.
#[derive(Debug)]
pub(super) struct BatchState {
    /// Buffers, kept only to reuse their memory.
    order: Option<Box<AdmissionOrder>>,
    resolved: Vec<Resolved>,
    /// Most calls in the next batch. After a call that could not happen at once, twice as many as were taken before it.
    calls_max: usize,
    /// Calls to take one by one before the next batch.
    pause: u32,
}

impl BatchState {
    pub(super) fn new() -> Self {
        BatchState { order: None, resolved: Vec::new(), calls_max: BATCH_CALLS_MAX, pause: 0 }
    }
}

impl Resolver {
    /// Takes calls in order of timestamps, with the same result as [`Resolver::push`] for each.
    ///
    /// # Errors
    /// As for [`Resolver::push`].
    pub fn take_plain(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> Result<(), TraceError> {
        let mut rest = calls;
        while let Some(first) = rest.first() {
            let mut done = 0;
            if self.batch.pause > 0 {
                self.batch.pause -= 1;
            } else if self.waiting.is_empty() {
                done = self.take_batch(rest, sink);
            }
            if done == 0 {
                self.take(&first.raw(), sink)?;
                done = 1;
            }
            rest = &rest[done..];
        }
        Ok(())
    }

    /// Takes the leading calls that need not wait. Returns their number.
    fn take_batch(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> usize {
        let calls = &calls[..calls.len().min(self.batch.calls_max)];
        let done = match self.limits.free_delay_ns {
            0 => self.resolve(calls, sink),
            _ => self.resolve_with_delays(calls, sink),
        };
        if let Some(last) = calls[..done].last() {
            self.now.event += done as u64;
            self.now.time_ns = self.now.time_ns.max(last.time_ns);
        }
        let batch = &mut self.batch;
        if done == calls.len() {
            batch.calls_max = (2 * batch.calls_max).min(BATCH_CALLS_MAX);
        } else {
            batch.calls_max = (2 * done).clamp(2 * BATCH_CALLS_MIN, BATCH_CALLS_MAX);
            batch.pause = if done < BATCH_CALLS_MIN { PAUSE_CALLS } else { 0 };
        }
        done
    }

    fn resolve_with_delays(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> usize {
        let mut order = self.batch.order.take().unwrap_or_else(AdmissionOrder::new);
        let (now_ns, free_delay_ns) = (self.now.time_ns, self.limits.free_delay_ns);
        let mut taken = 0;
        if order.arrange(&self.delayed, calls, now_ns, free_delay_ns, self.threads.dense()) {
            let done = self.resolve(order.admitted(), sink);
            taken = order.finish(&mut self.delayed, done);
        }
        self.batch.order = Some(order);
        taken
    }

    /// Resolves and emits the leading calls, at most [`BATCH_CALLS_MAX`]. Returns their number.
    fn resolve(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> usize {
        debug_assert!(self.waiting.is_empty() && self.woken.is_empty(), "a batch would overtake a waiting thread");
        let mut resolved = std::mem::take(&mut self.batch.resolved);
        resolved.resize(calls.len().max(resolved.len()), Resolved::NONE);
        let mut done = 0;
        loop {
            let (rest, into) = (&calls[done..], &mut resolved[done..]);
            done += self.live.apply_known(rest, &self.threads, &mut self.emitted_ns, into);
            let Some(first) = calls.get(done).and_then(|call| self.resolve_first(call)) else { break };
            resolved[done] = first;
            done += 1;
        }
        if done > 0 {
            sink.take_all(&resolved[..done]);
        }
        self.batch.resolved = resolved;
        done
    }

    /// Resolves a call whose address or thread may be new; `None` if it cannot happen at once.
    #[inline(never)]
    fn resolve_first(&mut self, call: &Plain) -> Option<Resolved> {
        let index = self.threads.index(call.thread).ok()?;
        let object =
            if call.is_free() { self.live.free(call.address)? } else { self.live.allocate(call.address).ok()?? };
        let thread = self.threads.emitted_as(index).0;
        self.emitted_ns = self.emitted_ns.max(call.time_ns);
        Some(Resolved { time_ns: self.emitted_ns, object: object.0, size: call.size, thread, call: call.call })
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_CALLS_MAX, Plain, Resolver};
    use crate::event::Event;
    use crate::resolve::{PlainCall, WaitLimits};

    /// Rounds of `malloc` and `free` by one thread after another: all calls of a thread but the first two go in one
    /// batch.
    #[test]
    fn batches_do_not_depend_on_the_number_of_earlier_threads() {
        let mut resolver = Resolver::new(WaitLimits::UNLOCKED_STAMPS);
        let (mut time_ns, mut events) = (0, 0);
        let mut sink = |_: Event| events += 1;
        for thread in 0..1000 {
            time_ns += 10_000; // the last thread's delayed free is due
            let mut next = |call, round: u64| {
                time_ns += 10;
                Plain::new(time_ns, thread, call, 0x10_000 + 64 * round, 8).expect("an ordinary address")
            };
            let pair = |round| [next(PlainCall::Malloc, round), next(PlainCall::Free, round)];
            let calls: Vec<Plain> = (0..BATCH_CALLS_MAX as u64 / 2).flat_map(pair).collect();
            calls[..2].iter().for_each(|call| resolver.push(call.raw(), &mut sink).expect("room"));
            assert_eq!(resolver.take_batch(&calls[2..], &mut sink), BATCH_CALLS_MAX - 2, "thread {thread}");
        }
        assert_eq!(resolver.finish(&mut sink).expect("room"), Default::default());
        assert_eq!(events, 1000 * BATCH_CALLS_MAX);
    }
}

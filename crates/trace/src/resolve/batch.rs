//! Resolves common calls in batches, as long as none of them must wait: each free finds a live address, each allocation a free one.
//!
//! Whether the next call allocates or frees, and which object it is about, is as good as random. So the main loop has no
//! data-dependent branch: it computes both results and selects one, as a mispredicted branch costs as much as all the rest.
//! Rare cases (a new address, a thread's first event) are handled between runs of the loop. Calls that must wait are left to
//! [`Resolver::take`].

use super::delay_table::DelayTable;
use super::objects::{NO_OBJECT, Objects};
use super::plain::{Plain, PlainCall, Resolved};
use super::{EventSink, Resolver, cache_slot};
use crate::error::TraceError;
use crate::event::ObjectId;
use std::hint::select_unpredictable;

/// Most calls in a batch.
pub(super) const BATCH_CALLS_MAX: usize = 128;
/// Calls taken one by one after [`SHORT_BATCHES_MAX`] consecutive short batches.
const PAUSE_CALLS: u32 = 64;
const SHORT_BATCHES_MAX: u32 = 4;
/// A batch of fewer calls is short: starting and ending it costs more than it saves.
const BATCH_CALLS_MIN: usize = 8;

/// State kept from one batch to the next.
#[derive(Debug, Default)]
pub(super) struct BatchState {
    /// Buffers, kept only to reuse their memory.
    pub(super) delay_table: Option<Box<DelayTable>>,
    resolved: Vec<Resolved>,
    /// Slots of the thread cache in use: those below this.
    pub(super) slots_used: usize,
    /// Calls to take one by one before the next batch.
    pause: u32,
    short_batches: u32,
}

impl Resolver {
    /// Takes calls in order of timestamps, with the same result as [`Resolver::push`] for each.
    ///
    /// # Errors
    /// As for [`Resolver::push`].
    pub fn take_plain(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> Result<(), TraceError> {
        let mut rest = calls;
        while let Some((first, others)) = rest.split_first() {
            let done = if self.waiting.is_empty() && self.batch.pause == 0 { self.take_batch(rest, sink) } else { 0 };
            if done == 0 {
                self.batch.pause = self.batch.pause.saturating_sub(1);
                self.take(&first.raw(), sink)?;
                rest = others;
            } else {
                rest = &rest[done..];
            }
        }
        Ok(())
    }

    /// Takes the leading calls that need not wait. Returns their number.
    fn take_batch(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> usize {
        let room = sink.room().min(BATCH_CALLS_MAX);
        let done = if self.limits.free_delay_ns > 0 {
            let done = self.resolve_with_delays(calls, room, sink);
            self.batch.short_batches =
                if done < BATCH_CALLS_MIN.min(calls.len()).min(room) { self.batch.short_batches + 1 } else { 0 };
            if self.batch.short_batches == SHORT_BATCHES_MAX {
                (self.batch.short_batches, self.batch.pause) = (0, PAUSE_CALLS);
            }
            done
        } else {
            let calls = &calls[..calls.len().min(room)];
            self.resolve(calls, sink)
        };
        if let Some(last) = calls[..done].last() {
            self.now.event += done as u64;
            self.now.time_ns = self.now.time_ns.max(last.time_ns);
        }
        done
    }

    /// Resolves and emits the leading calls, at most [`BATCH_CALLS_MAX`]. Returns their number.
    pub(super) fn resolve(&mut self, calls: &[Plain], sink: &mut impl EventSink) -> usize {
        let mut resolved = std::mem::take(&mut self.batch.resolved);
        resolved.resize(BATCH_CALLS_MAX, Resolved::NONE);
        self.ids.stock(calls.len());
        let mut done = 0;
        loop {
            done += self.resolve_known(&calls[done..], &mut resolved[done..]);
            let Some(first) = calls.get(done).and_then(|call| self.resolve_first(call)) else { break };
            resolved[done] = first;
            done += 1;
        }
        if !self.doubtful.has_no_room() {
            let frees = resolved[..done].iter().filter(|resolved| resolved.call == PlainCall::Free);
            frees.for_each(|free| self.doubtful.remove(ObjectId(free.object)));
        }
        if done > 0 {
            sink.take_all(&resolved[..done]);
        }
        self.batch.resolved = resolved;
        done
    }

    /// Resolves calls up to the first whose address or thread is not known, or whose address is not in the state that it needs.
    fn resolve_known(&mut self, calls: &[Plain], resolved: &mut [Resolved]) -> usize {
        let (buckets, buckets_log2) = self.objects.buckets();
        let (stack, mut top) = (self.ids.stack.as_mut_slice(), self.ids.top);
        let mut time_ns = self.emitter.time_ns;
        let before = top;
        let mut done = 0;
        for (call, into) in calls.iter().zip(resolved) {
            let (raw, thread) = self.emitted_cache[cache_slot(call.thread)];
            let location = Objects::locate(buckets_log2, call.address);
            let Some(bucket) = buckets.get_mut(location.bucket) else { break };
            let (Some(slot), true) = (bucket.find(location.bits), raw == call.thread) else { break };
            let is_free = call.is_free();
            let known = bucket.ids[slot];
            if (known == NO_OBJECT) == is_free {
                break;
            }
            let Some([upcoming, freed]) = top.checked_sub(1).and_then(|last| stack.get_mut(last..=top)) else { break };
            let object = select_unpredictable(is_free, known, *upcoming);
            bucket.ids[slot] = select_unpredictable(is_free, NO_OBJECT, *upcoming);
            // After an allocation this is above the top of the stack, so it has no effect.
            *freed = object;
            top = top + 2 * usize::from(is_free) - 1;
            time_ns = time_ns.max(call.time_ns);
            *into = Resolved { time_ns, object, size: call.size, thread, call: call.call };
            done += 1;
        }
        // Each call moved the top by one.
        let frees = (done + top - before) / 2;
        self.ids.top = top;
        self.objects.count(done - frees, frees);
        self.emitter.time_ns = time_ns;
        done
    }

    /// Resolves a call whose address or thread may be new; `None` if it must wait.
    #[inline(never)]
    fn resolve_first(&mut self, call: &Plain) -> Option<Resolved> {
        let index = self.thread_index(call.thread).ok()?;
        let object = match call.call {
            PlainCall::Free => {
                let object = self.objects.remove(call.address)?;
                self.ids.release(object);
                object
            }
            _ => {
                let object = self.ids.upcoming().filter(|&object| self.objects.insert_new(call.address, object))?;
                self.ids.allocate();
                object
            }
        };
        let thread = self.emitted_as(index).0;
        self.emitted_cache[cache_slot(call.thread)] = (call.thread, thread);
        self.emitter.time_ns = self.emitter.time_ns.max(call.time_ns);
        Some(Resolved { time_ns: self.emitter.time_ns, object, size: call.size, thread, call: call.call })
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_CALLS_MAX, Plain, PlainCall, Resolver};
    use crate::event::Event;
    use crate::resolve::WaitLimits;

    /// Rounds of `malloc` and `free` by one thread after another: all calls of a thread but the first two go in one batch.
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
            resolver.take_plain(&calls[..2], &mut sink).expect("room");
            assert_eq!(resolver.take_batch(&calls[2..], &mut sink), BATCH_CALLS_MAX - 2, "thread {thread}");
        }
        assert_eq!(resolver.finish(&mut sink).expect("room"), Default::default());
        assert_eq!(events, 1000 * BATCH_CALLS_MAX);
    }
}

//! The order in which the calls of a batch are admitted, where frees are delayed.
//!
//! This is `delayed.rs` for many calls at once. Of the rules there, a batch applies only the second: a delayed free is admitted
//! just before the next call of its thread. The two others end the batch, and leave the call in question to the general path:
//! 1. No call of a batch comes after a free is due.
//! 2. If a call allocates an address whose free is still delayed, the address is live. So the table of objects refuses the call,
//!    and everything from there on is taken back.
//!
//! Whether a call is a free, and whether its thread has a delayed free, is as good as random, so neither is a branch: both calls
//! are always copied to the output, and the output position advances only past those that count.

use super::delayed::{DelayedFrees, Free, due_ns};
use super::plain::Plain;
use std::hint::select_unpredictable;

/// Most calls in a batch.
pub(super) const BATCH_CALLS_MAX: usize = 128;
/// Most calls of a batch and delayed frees before it. A power of two, so that indices need no bounds checks.
const CALLS_MAX: usize = 2 * BATCH_CALLS_MAX;
/// No call is at this position.
const NONE: u16 = u16::MAX;

/// The order. Reused from batch to batch.
#[derive(Debug)]
pub(super) struct AdmissionOrder {
    /// The frees that were delayed before the batch, then the calls of the batch.
    calls: [Plain; CALLS_MAX],
    /// Number of calls, and of delayed frees before them.
    len: usize,
    delayed: usize,
    /// For each free, the position of its thread's next call, else `NONE`; for each other call 0.
    next: [u16; CALLS_MAX],
    /// For each call, how many calls are admitted after it was taken.
    admitted_after: [u16; CALLS_MAX],
    admitted: [Plain; CALLS_MAX],
    /// Position of each thread's last call, by raw thread number. Outdated unless that call is before the present one and of the
    /// same thread.
    last: Vec<u16>,
}

impl AdmissionOrder {
    pub(super) fn new() -> Box<Self> {
        Box::new(AdmissionOrder {
            calls: [Plain::NONE; CALLS_MAX],
            len: 0,
            delayed: 0,
            next: [NONE; CALLS_MAX],
            admitted_after: [0; CALLS_MAX],
            admitted: [Plain::NONE; CALLS_MAX],
            last: Vec::new(),
        })
    }

    /// Orders the leading calls after the delayed frees. `now_ns` is the time reached before. The calls of threads whose raw number
    /// is not below `threads` are left out. False if no batch is possible.
    pub(super) fn arrange(
        &mut self,
        delayed: &DelayedFrees,
        calls: &[Plain],
        now_ns: u64,
        free_delay_ns: u64,
        threads: usize,
    ) -> bool {
        self.last.resize(threads.max(self.last.len()), 0);
        let is_whole = self.begin(delayed);
        let oldest = self.calls[..self.delayed].first().or(calls.first());
        let end_ns = oldest.map_or(0, |call| due_ns(call.time_ns, free_delay_ns));
        if !is_whole || now_ns > end_ns {
            return false;
        }
        let calls = &calls[..calls.len().min(BATCH_CALLS_MAX)];
        let calls = &calls[..calls.partition_point(|call| call.time_ns <= end_ns)];
        let Self { calls: window, next, admitted_after, admitted, last, .. } = self;
        let last = last.as_mut_slice();
        let (mut position, mut count) = (self.delayed, 0);
        for call in calls {
            let Some(last) = last.get_mut(call.thread as usize) else { break };
            let previous = usize::from(*last) % CALLS_MAX;
            *last = position as u16;
            let own = window[previous];
            let is_free = call.is_free();
            let has_free = (previous < position) & (own.thread == call.thread) & own.is_free();
            admitted[count % CALLS_MAX] = own;
            admitted[(count + usize::from(has_free)) % CALLS_MAX] = *call;
            count += usize::from(has_free) + usize::from(!is_free);
            let place = position % CALLS_MAX;
            next[select_unpredictable(has_free, previous, place)] = position as u16;
            next[place] = select_unpredictable(is_free, NONE, 0);
            admitted_after[place] = count as u16;
            window[place] = *call;
            position += 1;
        }
        self.len = position;
        true
    }

    /// Begins with the delayed frees. False if there are too many, or one of them cannot be in a batch: its thread's number is too
    /// high, or its address not ordinary.
    fn begin(&mut self, delayed: &DelayedFrees) -> bool {
        let mut position = 0;
        for free in delayed.iter().map_while(Free::plain).take(BATCH_CALLS_MAX) {
            let Some(last) = self.last.get_mut(free.thread as usize) else { break };
            *last = position as u16;
            (self.calls[position], self.next[position], self.admitted_after[position]) = (free, NONE, 0);
            position += 1;
        }
        (self.delayed, self.len) = (position, position);
        position == delayed.len()
    }

    /// The admitted calls in order.
    pub(super) fn admitted(&self) -> &[Plain] {
        let count = self.admitted_after[..self.len].last().copied().unwrap_or_default();
        &self.admitted[..count.into()]
    }

    /// How many calls of the batch were taken if only the first `done` admitted calls were possible: those before the call that
    /// admits the next.
    pub(super) fn taken(&self, done: usize) -> usize {
        if done == self.admitted().len() {
            return self.len - self.delayed;
        }
        self.admitted_after[self.delayed..self.len].partition_point(|&admitted| usize::from(admitted) <= done)
    }

    /// The frees that are delayed when `taken` calls of the batch were taken and `done` were admitted, latest first.
    pub(super) fn delayed(&self, taken: usize, done: usize) -> impl Iterator<Item = &Plain> {
        let end = self.delayed + taken;
        let admitted = self.admitted_after[..end].last().copied().unwrap_or_default();
        // If more are done, the call after these has already admitted its thread's free.
        let next_min = end + (done - usize::from(admitted));
        let is_delayed = move |&(_, &next): &(_, &u16)| usize::from(next) >= next_min;
        let calls = self.calls[..end].iter().zip(&self.next[..end]).rev();
        // Each call is either admitted or delayed.
        calls.filter(is_delayed).map(|(call, _)| call).take(end - done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Splitmix64;
    use crate::resolve::PlainCall;

    const DELAY_NS: u64 = 150;
    const THREADS: usize = 250;

    /// The second rule of `delayed.rs`, one call at a time. Returns the admitted calls.
    fn one_by_one(delayed: &mut Vec<Plain>, calls: &[Plain]) -> Vec<Plain> {
        let mut admitted = Vec::new();
        for call in calls {
            let own = delayed.iter().position(|free| free.thread == call.thread);
            admitted.extend(own.map(|own| delayed.remove(own)));
            if call.is_free() { &mut *delayed } else { &mut admitted }.push(*call);
        }
        admitted
    }

    /// Whether a batch after these frees has to end before `next`.
    fn ends_before(delayed: &[Plain], first: &Plain, next: &Plain) -> bool {
        let oldest = delayed.first().unwrap_or(first);
        let mut all = delayed.iter().chain([next]);
        next.time_ns > oldest.time_ns + DELAY_NS || all.any(|call| call.thread as usize >= THREADS)
    }

    #[test]
    fn a_batch_is_ordered_as_its_calls_one_by_one() {
        let mut random = Splitmix64::new(88_172);
        let (mut order, mut delayed) = (AdmissionOrder::new(), Vec::<Plain>::new());
        let (mut time_ns, mut stopped, mut whole) = (0, 0, 0);
        for round in 0..5000 {
            let threads = [2, 5, 40, 251][round % 4];
            let mut call = |_| {
                time_ns += random.below(3);
                let kind = [PlainCall::Malloc, PlainCall::Free][random.below(2) as usize];
                Plain::new(time_ns, random.below(threads) as u32, kind, 16 * (1 + random.below(1000)), 0)
            };
            let calls: Vec<Plain> = (0..100).filter_map(&mut call).collect();
            let mut frees = DelayedFrees::default();
            delayed.iter().for_each(|free| frees.add(Free::from(free)));
            let begins = order.arrange(&frees, &calls, calls[0].time_ns, DELAY_NS, THREADS);

            let possible = if begins { order.len - order.delayed } else { 0 };
            assert!(possible == calls.len() || ends_before(&delayed, &calls[0], &calls[possible]), "round {round}");
            if !begins {
                delayed.clear(); // time passes
                continue;
            }
            let admitted = one_by_one(&mut delayed.clone(), &calls[..possible]);
            assert_eq!(order.admitted(), admitted, "round {round}");

            let some = random.below(admitted.len() as u64 + 1) as usize;
            let done = if random.chance(1, 2) { some } else { admitted.len() };
            let taken = order.taken(done);
            if let Some(next) = calls[..possible].get(taken) {
                assert!(one_by_one(&mut delayed.clone(), &calls[..=taken]).len() > done, "round {round}");
                stopped += 1;
                if one_by_one(&mut delayed, &calls[..taken]).len() < done {
                    delayed.retain(|free| free.thread != next.thread);
                }
            } else {
                one_by_one(&mut delayed, &calls[..taken]);
                whole += 1;
            }
            let mut left: Vec<Plain> = order.delayed(taken, done).copied().collect();
            left.reverse();
            assert_eq!(left, delayed, "round {round}");
            one_by_one(&mut delayed, &calls[taken..][..1.min(calls.len() - taken)]);
        }
        assert!(stopped > 500 && whole > 500, "{stopped} stopped, {whole} whole");
    }
}

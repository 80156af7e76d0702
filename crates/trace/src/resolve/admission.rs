//! The order in which the calls of a batch are admitted, where frees are delayed.
//!
//! Of the three rules in `delayed.rs`, a batch applies only the second: a delayed free is admitted just before the next
//! call of its thread. Where another rule would apply, the batch ends and the general path continues:
//! - Rule 1: a batch has no call after the time at which the oldest free is due.
//! - Rule 3: an allocation of a live address cannot happen at once. [`AdmissionOrder::finish`] cancels that call and
//!   all later ones.
//!
//! Whether a call is a free, and whether its thread has a delayed free, is unpredictable, so the loop does not branch
//! on either. Both calls are always copied to the output, and the output position advances only past those that count.

use super::Plain;
use super::delayed::{DelayedFrees, due_ns};

/// Most calls in a batch.
pub(super) const BATCH_CALLS_MAX: usize = 128;
/// Most calls of a batch and delayed frees before it. A power of two, so that indices need no bounds checks.
const CALLS_MAX: usize = 2 * BATCH_CALLS_MAX;

/// A batch of calls and the order in which they are admitted. The memory is reused from batch to batch.
#[derive(Debug)]
pub(super) struct AdmissionOrder {
    /// The frees that were delayed before the batch, then the calls of the batch.
    calls: [Plain; CALLS_MAX],
    /// Number of calls, and of delayed frees before them.
    len: usize,
    delayed: usize,
    admitted: [Plain; CALLS_MAX],
    admitted_len: usize,
    /// Position of each thread's last call in `calls`, by raw thread number. Outdated if there is no call of the
    /// thread.
    last: Vec<u16>,
}

impl AdmissionOrder {
    pub(super) fn new() -> Box<Self> {
        let (calls, admitted) = ([Plain::NONE; CALLS_MAX], [Plain::NONE; CALLS_MAX]);
        Box::new(AdmissionOrder { calls, len: 0, delayed: 0, admitted, admitted_len: 0, last: Vec::new() })
    }

    /// Orders the leading calls after the delayed frees. `now_ns` is the time reached before. The calls of threads
    /// whose raw number is not below `threads` are left out. False if no batch is possible.
    pub(super) fn arrange(
        &mut self,
        delayed: &DelayedFrees,
        calls: &[Plain],
        now_ns: u64,
        free_delay_ns: u64,
        threads: usize,
    ) -> bool {
        let oldest = delayed.iter().chain(calls).next();
        let end_ns = oldest.map_or(0, |call| due_ns(call.time_ns, free_delay_ns));
        if delayed.len() > BATCH_CALLS_MAX || now_ns > end_ns {
            return false;
        }
        let calls = &calls[..calls.len().min(BATCH_CALLS_MAX)];
        let calls = &calls[..calls.partition_point(|call| call.time_ns <= end_ns)];
        self.last.resize(threads.max(self.last.len()), 0);
        let Self { calls: window, admitted, last, .. } = self;
        let last = last.as_mut_slice();
        let (mut position, mut count) = (0, 0);
        let mut add = |call: &Plain| {
            let Some(last) = last.get_mut(call.thread as usize) else { return false };
            let previous = usize::from(*last) % CALLS_MAX;
            *last = position as u16;
            let own = window[previous];
            let has_free = (previous < position) & (own.thread == call.thread) & own.is_free();
            admitted[count % CALLS_MAX] = own;
            admitted[(count + usize::from(has_free)) % CALLS_MAX] = *call;
            count += usize::from(has_free) + usize::from(!call.is_free());
            window[position % CALLS_MAX] = *call;
            position += 1;
            true
        };
        let begins = delayed.iter().all(&mut add);
        if begins {
            calls.iter().all(&mut add);
        }
        (self.delayed, self.len, self.admitted_len) = (delayed.len(), position, count);
        begins
    }

    /// The admitted calls in order.
    pub(super) fn admitted(&self) -> &[Plain] {
        &self.admitted[..self.admitted_len]
    }

    /// Updates the delayed frees after the first `done` admitted calls; the next one cannot happen. Returns how many
    /// calls of the batch are taken: those before the one that admits that next call.
    pub(super) fn finish(&self, delayed: &mut DelayedFrees, done: usize) -> usize {
        let calls = &self.calls[self.delayed..self.len];
        if done < self.admitted_len {
            return one_by_one(delayed, calls, done);
        }
        let is_delayed = |&(position, call): &(usize, &Plain)| {
            call.is_free() && self.last.get(call.thread as usize).is_some_and(|&last| usize::from(last) == position)
        };
        // Each call is either admitted or delayed, so few have to be looked at.
        let latest = self.calls[..self.len].iter().enumerate().rev().filter(is_delayed).take(self.len - done);
        delayed.replace(latest.map(|(_, call)| *call));
        calls.len()
    }
}

/// The second rule of `delayed.rs`, one call at a time, until `most` calls are admitted. Returns the number of calls
/// before the one that would admit another; that one may have admitted its thread's free.
fn one_by_one(delayed: &mut DelayedFrees, calls: &[Plain], most: usize) -> usize {
    let mut admitted = 0;
    for (taken, call) in calls.iter().enumerate() {
        if delayed.iter().any(|free| free.thread == call.thread) {
            if admitted == most {
                return taken;
            }
            delayed.take_of_thread(call.thread);
            admitted += 1;
        }
        if call.is_free() {
            delayed.add(*call);
        } else if admitted == most {
            return taken;
        } else {
            admitted += 1;
        }
    }
    calls.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::PlainCall;
    use crate::splitmix::Splitmix64;

    const DELAY_NS: u64 = 150;
    const THREADS: usize = 250;

    /// The calls that [`one_by_one`] admits.
    fn admitted(delayed: &[Plain], calls: &[Plain]) -> Vec<Plain> {
        let (mut delayed, mut admitted) = (delayed.to_vec(), Vec::new());
        for call in calls {
            let own = delayed.iter().position(|free| free.thread == call.thread);
            admitted.extend(own.map(|own| delayed.remove(own)));
            if call.is_free() { &mut delayed } else { &mut admitted }.push(*call);
        }
        admitted
    }

    fn plain(delayed: &DelayedFrees) -> Vec<Plain> {
        delayed.iter().copied().collect()
    }

    /// Whether a batch after these frees has to end before `next`.
    fn ends_before(delayed: &[Plain], first: &Plain, next: &Plain) -> bool {
        let oldest = delayed.first().unwrap_or(first);
        let is_late = next.time_ns > oldest.time_ns + DELAY_NS;
        let mut all = delayed.iter().chain([next]);
        is_late || delayed.len() > BATCH_CALLS_MAX || all.any(|call| call.thread as usize >= THREADS)
    }

    #[test]
    fn a_batch_is_ordered_as_its_calls_one_by_one() {
        let mut random = Splitmix64::new(88_172);
        let (mut order, mut delayed) = (AdmissionOrder::new(), DelayedFrees::default());
        let (mut time_ns, mut stopped, mut whole) = (0, 0, 0);
        for round in 0..5000 {
            let threads = [2, 5, 40, 251][round % 4];
            let mut call = |_| {
                time_ns += random.below(3);
                let kind = [PlainCall::Malloc, PlainCall::Free][random.below(2) as usize];
                Plain::new(time_ns, random.below(threads) as u32, kind, 16 * (1 + random.below(1000)), 0)
            };
            let calls: Vec<Plain> = (0..100).filter_map(&mut call).collect();
            let before = plain(&delayed);
            if !order.arrange(&delayed, &calls, calls[0].time_ns, DELAY_NS, THREADS) {
                assert!(ends_before(&before, &calls[0], &calls[0]), "round {round}");
                delayed.replace(std::iter::empty()); // time passes
                continue;
            }
            let possible = order.len - order.delayed;
            assert!(possible == calls.len() || ends_before(&before, &calls[0], &calls[possible]), "round {round}");
            let all = admitted(&before, &calls[..possible]);
            assert_eq!(order.admitted(), all, "round {round}");

            if random.chance(1, 2) {
                let done = random.below(all.len() as u64 + 1) as usize;
                let taken = order.finish(&mut delayed, done);
                assert!(admitted(&before, &calls[..taken]).len() <= done, "round {round}");
                assert!(taken == possible || admitted(&before, &calls[..=taken]).len() > done, "round {round}");
                assert_eq!(taken + before.len(), done + plain(&delayed).len(), "round {round}: admitted or delayed");
                stopped += 1;
            } else {
                let mut expected = DelayedFrees::default();
                before.iter().for_each(|free| expected.add(*free));
                assert_eq!(one_by_one(&mut expected, &calls[..possible], usize::MAX), possible);
                assert_eq!(order.finish(&mut delayed, all.len()), possible, "round {round}");
                assert_eq!(plain(&delayed), plain(&expected), "round {round}");
                one_by_one(&mut delayed, &calls[possible..], usize::MAX);
                whole += 1;
            }
        }
        assert!(stopped > 500 && whole > 500, "{stopped} stopped, {whole} whole");
    }
}

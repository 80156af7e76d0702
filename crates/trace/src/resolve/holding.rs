//! Frees held back, for many common calls at once: the same as `held.rs` does for one call after another.
//!
//! A thread has one free held back at the most, up to its next call. So each call admits what its thread has held, if
//! anything, and then either itself or nothing: copied always, and counted where it counts, as in `flow.rs`.

use super::flow::FLOW_CALLS;
use super::held::Held;
use super::plain::Plain;
use super::{Emit, Resolver};

/// Threads that are told apart here; more take the slower way.
const THREADS_MAX: usize = 64;
/// Entries of the filter; a power of two.
const FILTER: usize = 1024;

/// The frees held back, by thread.
#[derive(Debug, Default)]
pub(super) struct Holding {
    threads: Vec<Slot>,
    /// Held frees whose addresses fall on each entry: 0 means that none of them has the address.
    filter: Vec<u8>,
    /// Calls in the order in which they can happen.
    admitted: Vec<Plain>,
}

/// What a thread has held back.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its last call: the free if `held` is 1.
    call: Plain,
    held: u8,
    /// Place in the order in which they were held.
    order: u32,
}

/// How far a pass came.
struct Passed {
    calls: usize,
    admitted: usize,
}

const EMPTY: Slot = Slot { call: Plain::NONE, held: 0, order: 0 };

impl Resolver {
    /// As [`Resolver::resolve`], with frees held back; at most `room` calls are emitted.
    pub(super) fn flow_held(&mut self, calls: &[Plain], room: usize, emit: &mut impl Emit) -> usize {
        if self.threads.len() > THREADS_MAX {
            return 0;
        }
        let mut holding = std::mem::take(&mut self.flow.holding);
        let mut passed = self.pass(&mut holding, calls, room);
        let done = self.resolve(&holding.admitted[..passed.admitted], emit);
        if done < passed.admitted {
            // The next one must wait. What was held when its turn came is found by a second pass up to there.
            passed = self.pass(&mut holding, calls, done);
            let waiting = calls.get(passed.calls).filter(|_| done > passed.admitted);
            if let Some(index) = waiting.and_then(|call| self.last_index(call.thread)) {
                holding.release(index); // Its free has happened.
            }
        }
        if passed.calls > 0 || done > 0 {
            holding.put_back(&mut self.held);
        }
        self.flow.holding = holding;
        passed.calls
    }

    /// Admits calls in order, up to one of a new thread, one that needs a look at what lives at its address, or one after which
    /// more than `room` are admitted.
    fn pass(&self, holding: &mut Holding, calls: &[Plain], room: usize) -> Passed {
        let mut passed = Passed { calls: 0, admitted: 0 };
        let Some(mut order) = holding.take_from(&self.held, self.threads.len()) else {
            return passed;
        };
        let Holding { threads, filter, admitted } = holding;
        let room = room.min(admitted.len());
        let mut now_ns = self.now.time_ns;
        // No later than the time of the first that is held.
        let mut due_ns = due_ns(threads, self.window.hold_ns);
        for call in calls {
            let Some(index) = self.last_index(call.thread) else { break };
            now_ns = now_ns.max(call.time_ns);
            if now_ns > due_ns {
                due_ns = self::due_ns(threads, self.window.hold_ns);
                if now_ns > due_ns {
                    break;
                }
            }
            let is_free = u8::from(call.is_free());
            let slot = &mut threads[index];
            let [own, counted] = [entry(slot.call.address), entry(call.address)];
            filter[own] -= slot.held;
            let reused = filter[counted] & is_free.wrapping_sub(1);
            let after = passed.admitted + usize::from(slot.held) + usize::from(1 - is_free);
            if reused != 0 || after > room {
                filter[own] += slot.held;
                break;
            }
            let Some(into) = admitted.get_mut(passed.admitted) else { break };
            *into = slot.call;
            if let Some(into) = admitted.get_mut(passed.admitted + usize::from(slot.held)) {
                *into = *call;
            }
            filter[counted] += is_free;
            order += 1;
            *slot = Slot { call: *call, held: is_free, order };
            due_ns = due_ns.min(call.time_ns.saturating_add(self.window.hold_ns));
            passed = Passed { calls: passed.calls + 1, admitted: after };
        }
        passed
    }
}

/// When the free held back first has been held long enough.
fn due_ns(threads: &[Slot], hold_ns: u64) -> u64 {
    let first = threads.iter().filter(|slot| slot.held != 0).min_by_key(|slot| slot.order);
    first.map_or(u64::MAX, |slot| slot.call.time_ns.saturating_add(hold_ns))
}

/// The entry of the filter for an address: of all its bits, as the heaps of two threads are often laid out alike.
#[inline(always)]
fn entry(address: u64) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - FILTER.ilog2())) as usize
}

impl Holding {
    /// Takes what is held over; how many frees that is. `None` where one cannot be handled here.
    fn take_from(&mut self, held: &Held, threads: usize) -> Option<u32> {
        (0..self.threads.len()).for_each(|index| self.release(index));
        self.threads.resize(threads, EMPTY);
        self.filter.resize(FILTER, 0);
        self.admitted.resize(FLOW_CALLS, Plain::NONE);
        let mut order = 0;
        for (index, free) in held.iter() {
            let call = free?;
            order += 1;
            self.filter[entry(call.address)] += 1;
            self.threads[index] = Slot { call, held: 1, order };
        }
        Some(order)
    }

    /// Lets go of what a thread has held.
    fn release(&mut self, index: usize) {
        let Slot { call, held, .. } = std::mem::replace(&mut self.threads[index], EMPTY);
        self.filter[entry(call.address)] -= held;
    }

    /// Gives back what is held now.
    fn put_back(&mut self, held: &mut Held) {
        let mut slots: Vec<(usize, Slot)> =
            self.threads.iter().copied().enumerate().filter(|(_, slot)| slot.held != 0).collect();
        slots.sort_unstable_by_key(|(_, slot)| slot.order);
        held.replace(slots.into_iter().map(|(index, slot)| (index, slot.call)));
    }
}

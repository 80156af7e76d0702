//! Delayed frees for batches of common calls: the same rules as `delayed.rs`, without branches per call.
//!
//! A thread has at most one delayed free, until its next call. So each call first admits the delayed free of its thread, if there
//! is one, and then itself, unless it is a free. Both are always copied to the output, and the output position advances only past
//! those that count, as in `batch.rs`.
//!
//! A thread has the slot of its number's low bits, as long as no other thread with the same bits makes a call. So later
//! threads take the slots of threads that ended, however many threads a program starts.

use super::batch::BATCH_CALLS_MAX;
use super::delayed::DelayedFrees;
use super::plain::Plain;
use super::{EventSink, Resolver, THREAD_CACHE_SLOTS, ThreadCache, cache_slot, cached_index};

/// Entries of the filter; a power of two.
const FILTER: usize = 1024;

/// The delayed frees, by the slot of their thread. Fixed-size arrays avoid bounds checks.
#[derive(Debug)]
pub(super) struct DelayTable {
    threads: [Slot; THREAD_CACHE_SLOTS],
    /// Slots that may have a delayed free: those below this.
    used: usize,
    /// Number of delayed frees whose address hashes to each entry: 0 means that none has the address.
    filter: [u8; FILTER],
    /// Admitted calls in order, with room for copies that do not count.
    admitted: [Plain; 2 * BATCH_CALLS_MAX],
}

/// The delayed free of a thread, if any.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The thread's last call: the delayed free if `delayed` is 1.
    call: Plain,
    /// Position in the order in which frees were delayed.
    order: u32,
    /// The filter entry of the address.
    entry: u16,
    delayed: u8,
}

/// How far a pass went.
struct Passed {
    calls: usize,
    admitted: usize,
}

const EMPTY: Slot = Slot { call: Plain::NONE, order: 0, entry: 0, delayed: 0 };

impl Resolver {
    /// As [`Resolver::resolve`], with delayed frees. Emits at most `room` calls.
    pub(super) fn resolve_with_delays(&mut self, calls: &[Plain], room: usize, sink: &mut impl EventSink) -> usize {
        let mut delay_table = self.batch.delay_table.take().unwrap_or_else(DelayTable::new);
        let mut passed = self.pass(&mut delay_table, calls, room);
        let done = self.resolve(&delay_table.admitted[..passed.admitted], sink);
        if done < passed.admitted {
            // The next call must wait. A second pass up to there finds the frees that were delayed at that point.
            passed = self.pass(&mut delay_table, calls, done);
            if let Some(waiting) = calls.get(passed.calls).filter(|_| done > passed.admitted) {
                delay_table.release(cache_slot(waiting.thread)); // Its free has happened.
            }
        }
        if passed.calls > 0 || done > 0 {
            delay_table.put_back(&mut self.delayed, &self.thread_cache);
        }
        self.batch.delay_table = Some(delay_table);
        passed.calls
    }

    /// Admits calls in order. Stops before a call whose thread is not cached, whose address may have a delayed free of another
    /// thread, or after which more than `room` calls would be admitted, and when a delayed free is due.
    fn pass(&self, delay_table: &mut DelayTable, calls: &[Plain], room: usize) -> Passed {
        let Some(mut order) = delay_table.take_from(&self.delayed, &self.thread_cache, self.batch.slots_used) else {
            return Passed { calls: 0, admitted: 0 };
        };
        let DelayTable { threads, used, filter, admitted } = delay_table;
        let used = (*used).min(THREAD_CACHE_SLOTS);
        let (room, free_delay_ns) = (room.min(BATCH_CALLS_MAX), self.limits.free_delay_ns);
        let mut now_ns = self.now.time_ns;
        // A lower bound of the time at which the first delayed free is due.
        let mut due_ns = due_ns(&threads[..used], free_delay_ns);
        let (mut taken, mut count) = (0, 0);
        for call in calls {
            if cached_index(&self.thread_cache, call.thread).is_none() {
                break;
            }
            let slot = cache_slot(call.thread);
            now_ns = now_ns.max(call.time_ns);
            if now_ns > due_ns {
                due_ns = self::due_ns(&threads[..used], free_delay_ns);
                if now_ns > due_ns {
                    break;
                }
            }
            let is_free = u8::from(call.is_free());
            let Slot { call: own, entry: own_entry, delayed, .. } = threads[slot];
            let entry = entry(call.address);
            let others = filter[usize::from(entry)] - delayed * u8::from(entry == own_entry);
            let after = count + usize::from(delayed) + usize::from(1 - is_free);
            if others & is_free.wrapping_sub(1) != 0 || after > room {
                break;
            }
            admitted[count % admitted.len()] = own;
            admitted[(count + usize::from(delayed)) % admitted.len()] = *call;
            filter[usize::from(own_entry)] -= delayed;
            filter[usize::from(entry)] += is_free;
            order += 1;
            threads[slot] = Slot { call: *call, order, entry, delayed: is_free };
            due_ns = due_ns.min(call.time_ns.saturating_add(free_delay_ns));
            (taken, count) = (taken + 1, after);
        }
        Passed { calls: taken, admitted: count }
    }
}

/// When the oldest delayed free is due.
fn due_ns(threads: &[Slot], free_delay_ns: u64) -> u64 {
    let first = threads.iter().filter(|slot| slot.delayed != 0).min_by_key(|slot| slot.order);
    first.map_or(u64::MAX, |slot| slot.call.time_ns.saturating_add(free_delay_ns))
}

/// The filter entry of an address. It depends on all bits, as the heaps of two threads often have the same layout.
#[inline(always)]
fn entry(address: u64) -> u16 {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - FILTER.ilog2())) as u16 % FILTER as u16
}

impl DelayTable {
    fn new() -> Box<Self> {
        let admitted = [Plain::NONE; 2 * BATCH_CALLS_MAX];
        Box::new(DelayTable { threads: [EMPTY; THREAD_CACHE_SLOTS], used: 0, filter: [0; FILTER], admitted })
    }

    /// Copies the delayed frees, which are in the first `slots_used` slots, and returns their number. `None` if one cannot be
    /// handled here: its thread is not cached, or its address is not ordinary.
    fn take_from(&mut self, delayed: &DelayedFrees, thread_cache: &ThreadCache, slots_used: usize) -> Option<u32> {
        (0..self.used).for_each(|slot| self.release(slot));
        self.used = slots_used;
        let mut order = 0;
        for free in delayed.iter() {
            let call = free.filter(|call| cached_index(thread_cache, call.thread).is_some())?;
            let entry = entry(call.address);
            order += 1;
            self.filter[usize::from(entry)] += 1;
            self.threads[cache_slot(call.thread)] = Slot { call, order, entry, delayed: 1 };
        }
        Some(order)
    }

    /// Forgets the delayed free of a slot.
    fn release(&mut self, slot: usize) {
        let slot = &mut self.threads[slot];
        self.filter[usize::from(slot.entry)] -= slot.delayed;
        slot.delayed = 0;
    }

    /// Copies the frees that are delayed now back to `delayed`.
    fn put_back(&mut self, delayed: &mut DelayedFrees, thread_cache: &ThreadCache) {
        let mut slots: Vec<Slot> = self.threads[..self.used].iter().copied().filter(|slot| slot.delayed != 0).collect();
        slots.sort_unstable_by_key(|slot| slot.order);
        let index_of = |slot: Slot| Some((cached_index(thread_cache, slot.call.thread)?, slot.call));
        delayed.replace(slots.into_iter().filter_map(index_of));
    }
}

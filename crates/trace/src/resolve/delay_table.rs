//! Frees held back, for many common calls at once: the same as `held.rs` does for one call after another.
//!
//! A thread has one free held back at the most, up to its next call. So each call admits what its thread has held, if
//! anything, and then either itself or nothing: copied always, and counted where it counts, as in `flow.rs`.
//!
//! A thread has the place of its number's low bits, as long as no other thread of that place makes a call. So threads that
//! come later have the places of those that ended, however many a program starts.

use super::batch::BATCH_CALLS_MAX;
use super::delayed::DelayedFrees;
use super::plain::Plain;
use super::{EventSink, Resolver, THREAD_CACHE_SLOTS, ThreadCache, cache_slot, cached_index};

/// Entries of the filter; a power of two.
const FILTER: usize = 1024;

/// The frees held back, by the place of their thread. Arrays, so that no index into them needs a check.
#[derive(Debug)]
pub(super) struct DelayTable {
    threads: [Slot; THREAD_CACHE_SLOTS],
    /// How many of them may hold anything.
    used: usize,
    /// Held frees whose addresses fall on each entry: 0 means that none of them has the address.
    filter: [u8; FILTER],
    /// Calls in the order in which they can happen, and room for those that are written and do not count.
    admitted: [Plain; 2 * BATCH_CALLS_MAX],
}

/// What a thread has held back.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its last call: the free if `held` is 1.
    call: Plain,
    /// Place in the order in which they were held.
    order: u32,
    /// That of the address in the filter.
    entry: u16,
    delayed: u8,
}

/// How far a pass came.
struct Passed {
    calls: usize,
    admitted: usize,
}

const EMPTY: Slot = Slot { call: Plain::NONE, order: 0, entry: 0, delayed: 0 };

impl Resolver {
    /// As [`Resolver::resolve`], with frees held back; at most `room` calls are emitted.
    pub(super) fn resolve_with_delays(&mut self, calls: &[Plain], room: usize, emit: &mut impl EventSink) -> usize {
        let mut delay_table = self.batch.delay_table.take().unwrap_or_else(DelayTable::new);
        let mut passed = self.pass(&mut delay_table, calls, room);
        let done = self.resolve(&delay_table.admitted[..passed.admitted], emit);
        if done < passed.admitted {
            // The next one must wait. What was held when its turn came is found by a second pass up to there.
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

    /// Admits calls in order, up to one of a thread that does not have its place, one that needs a look at what lives at its
    /// address, or one after which more than `room` are admitted.
    fn pass(&self, delay_table: &mut DelayTable, calls: &[Plain], room: usize) -> Passed {
        let Some(mut order) = delay_table.take_from(&self.delayed, &self.thread_cache, self.batch.slots_used) else {
            return Passed { calls: 0, admitted: 0 };
        };
        let DelayTable { threads, used, filter, admitted } = delay_table;
        let used = (*used).min(THREAD_CACHE_SLOTS);
        let (room, free_delay_ns) = (room.min(BATCH_CALLS_MAX), self.window.free_delay_ns);
        let mut now_ns = self.now.time_ns;
        // No later than the time of the first that is held.
        let mut due_ns = due_ns(&threads[..used], free_delay_ns);
        let (mut taken, mut count) = (0, 0);
        for call in calls {
            if cached_index(&self.thread_cache, call.thread).is_none() {
                break;
            }
            let place = cache_slot(call.thread);
            now_ns = now_ns.max(call.time_ns);
            if now_ns > due_ns {
                due_ns = self::due_ns(&threads[..used], free_delay_ns);
                if now_ns > due_ns {
                    break;
                }
            }
            let is_free = u8::from(call.is_free());
            let Slot { call: own, entry: own_entry, delayed, .. } = threads[place];
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
            threads[place] = Slot { call: *call, order, entry, delayed: is_free };
            due_ns = due_ns.min(call.time_ns.saturating_add(free_delay_ns));
            (taken, count) = (taken + 1, after);
        }
        Passed { calls: taken, admitted: count }
    }
}

/// When the free held back first has been held long enough.
fn due_ns(threads: &[Slot], free_delay_ns: u64) -> u64 {
    let first = threads.iter().filter(|slot| slot.delayed != 0).min_by_key(|slot| slot.order);
    first.map_or(u64::MAX, |slot| slot.call.time_ns.saturating_add(free_delay_ns))
}

/// The entry of the filter for an address: of all its bits, as the heaps of two threads are often laid out alike.
#[inline(always)]
fn entry(address: u64) -> u16 {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - FILTER.ilog2())) as u16 % FILTER as u16
}

impl DelayTable {
    fn new() -> Box<Self> {
        let admitted = [Plain::NONE; 2 * BATCH_CALLS_MAX];
        Box::new(DelayTable { threads: [EMPTY; THREAD_CACHE_SLOTS], used: 0, filter: [0; FILTER], admitted })
    }

    /// Takes what is held over, at the first `places`; how many frees that is. `None` where one cannot be handled here: another
    /// thread has its place, or its address is not ordinary.
    fn take_from(&mut self, delayed: &DelayedFrees, thread_cache: &ThreadCache, slots_used: usize) -> Option<u32> {
        (0..self.used).for_each(|place| self.release(place));
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

    /// Lets go of what the thread of a place has held.
    fn release(&mut self, place: usize) {
        let slot = &mut self.threads[place];
        self.filter[usize::from(slot.entry)] -= slot.delayed;
        slot.delayed = 0;
    }

    /// Gives back what is held now.
    fn put_back(&mut self, delayed: &mut DelayedFrees, thread_cache: &ThreadCache) {
        let mut slots: Vec<Slot> = self.threads[..self.used].iter().copied().filter(|slot| slot.delayed != 0).collect();
        slots.sort_unstable_by_key(|slot| slot.order);
        let index_of = |slot: Slot| Some((cached_index(thread_cache, slot.call.thread)?, slot.call));
        delayed.replace(slots.into_iter().filter_map(index_of));
    }
}

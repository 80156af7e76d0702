//! The live objects of the merge: which object is at which address, and which ids are unused.

use super::objects::{NO_OBJECT, Objects};
use super::plain::{Plain, PlainCall, Resolved};
use super::recycler::Recycler;
use super::threads::Threads;
use crate::error::TraceError;
use crate::event::ObjectId;
use crate::ids::ObjectSet;
use std::hint::select_unpredictable;

/// The live objects.
#[derive(Debug)]
pub(super) struct LiveObjects {
    objects: Objects,
    ids: Recycler,
    /// Objects that were live at the last gap and have not been freed since, as far as is known.
    doubtful: ObjectSet,
}

impl LiveObjects {
    pub(super) fn new() -> Self {
        LiveObjects { objects: Objects::new(), ids: Recycler::default(), doubtful: ObjectSet::default() }
    }

    /// The object at an address.
    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<ObjectId> {
        self.objects.get(address).map(ObjectId)
    }

    /// A new object at an address; `None` if one is live there.
    ///
    /// # Errors
    /// [`TraceError::TooManyObjects`].
    #[inline(always)]
    pub(super) fn allocate(&mut self, address: u64) -> Result<Option<ObjectId>, TraceError> {
        let id = self.ids.upcoming().ok_or(TraceError::TooManyObjects)?;
        let new = self.objects.insert_new(address, id);
        if new {
            self.ids.allocate();
        }
        Ok(new.then_some(ObjectId(id)))
    }

    /// Ends the object at an address; `None` if none is live there.
    #[inline(always)]
    pub(super) fn free(&mut self, address: u64) -> Option<ObjectId> {
        let object = ObjectId(self.objects.remove(address)?);
        self.ids.release(object.0);
        self.doubtful.remove(object);
        Some(object)
    }

    /// Moves the object at `old` to `new`, where none is live.
    pub(super) fn relocate(&mut self, old: u64, new: u64) {
        if let Some(id) = self.objects.remove(old) {
            let moved = self.objects.insert_new(new, id);
            debug_assert!(moved, "an object is live at the new address");
        }
    }

    /// Notes that any live object may have been freed.
    pub(super) fn doubt_all(&mut self) {
        self.doubtful = self.ids.empty_set();
        self.objects.ids().for_each(|id| self.doubtful.insert(id));
    }

    /// Whether the object at an address may have been freed in a gap. An allocation must not wait for its free: the
    /// free of the next block would end it, and so on for every later block at this address.
    #[cold]
    pub(super) fn is_doubtful(&self, address: u64) -> bool {
        self.get(address).is_some_and(|object| self.doubtful.contains(object))
    }

    /// [`LiveObjects::allocate`] or [`LiveObjects::free`] for each of the leading calls, without a data-dependent
    /// branch.
    ///
    /// Stops before a call with a new address or thread, an allocation of a live address, and a free of an address that
    /// is not live. Writes the result of each call to `resolved`, which is at least as long as `calls`; `time_ns` is
    /// the time of the last emitted event. Returns the number of calls.
    #[inline(always)]
    pub(super) fn apply_known(
        &mut self,
        calls: &[Plain],
        threads: &Threads,
        time_ns: &mut u64,
        resolved: &mut [Resolved],
    ) -> usize {
        self.ids.stock(calls.len());
        let (buckets, buckets_log2) = self.objects.buckets();
        let (stack, mut top) = (self.ids.stack.as_mut_slice(), self.ids.top);
        let (before, mut last_ns, mut done) = (top, *time_ns, 0);
        for (call, into) in calls.iter().zip(resolved.iter_mut()) {
            let location = Objects::locate(buckets_log2, call.address);
            let Some(bucket) = buckets.get_mut(location.bucket) else { break };
            let (Some(slot), Some(thread)) = (bucket.find(location.bits), threads.known_number(call.thread)) else {
                break;
            };
            let is_free = call.is_free();
            let known = bucket.ids[slot];
            if (known == NO_OBJECT) == is_free {
                break;
            }
            // Ids are taken from the top of the stack, and freed ones put there.
            let Some([upcoming, freed]) = top.checked_sub(1).and_then(|last| stack.get_mut(last..=top)) else { break };
            let object = select_unpredictable(is_free, known, *upcoming);
            bucket.ids[slot] = select_unpredictable(is_free, NO_OBJECT, *upcoming);
            // After an allocation this is above the top of the stack, so it has no effect.
            *freed = object;
            top = top + 2 * usize::from(is_free) - 1;
            last_ns = last_ns.max(call.time_ns);
            *into = Resolved { time_ns: last_ns, object, size: call.size, thread, call: call.call };
            done += 1;
        }
        // Each call moved the top by one.
        let frees = (done + top - before) / 2;
        self.ids.top = top;
        self.objects.count(done - frees, frees);
        *time_ns = last_ns;
        if !self.doubtful.has_no_room() {
            let frees = resolved[..done].iter().filter(|resolved| resolved.call == PlainCall::Free);
            frees.for_each(|free| self.doubtful.remove(ObjectId(free.object)));
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::splitmix::Splitmix64;

    /// [`LiveObjects::apply_known`] finds the same objects as single calls, with few addresses and some calls that
    /// cannot happen.
    #[test]
    fn known_calls_find_the_objects_that_single_calls_find() {
        let mut random = Splitmix64::new(88_172);
        let (mut at_once, mut single) = (LiveObjects::new(), LiveObjects::new());
        let (mut threads, mut time_ns, mut expected_ns, mut known) = (Threads::new(), 0, 0, 0);
        for round in 0..4000 {
            if round % 500 == 400 {
                at_once.doubt_all();
                single.doubt_all();
            }
            let mut call = |_| {
                let kind =
                    [PlainCall::Malloc, PlainCall::Calloc, PlainCall::Free, PlainCall::Free][random.below(4) as usize];
                // A used address is mostly free or live as the call needs it.
                let address = loop {
                    let address = 16 * (1 + random.below(1000));
                    if single.get(address).is_some() == (kind == PlainCall::Free) || random.chance(1, 100) {
                        break address;
                    }
                };
                Plain::new(round + random.below(30), random.below(3) as u32, kind, address, 8)
            };
            let calls: Vec<Plain> = (0..30).filter_map(&mut call).collect();
            let mut resolved = [Resolved::NONE; 30];
            let done = at_once.apply_known(&calls, &threads, &mut time_ns, &mut resolved);
            known += done;
            let rest = calls.get(done).map(|call| (call, None));
            let first = calls.iter().zip(&resolved).take(done).map(|(call, resolved)| (call, Some(resolved)));
            for (call, resolved) in first.chain(rest) {
                let apply = |live: &mut LiveObjects| match call.is_free() {
                    true => live.free(call.address),
                    false => live.allocate(call.address).expect("few objects"),
                };
                let object = apply(&mut single);
                let index = threads.index(call.thread).expect("few threads");
                let number = threads.emitted_as(index).0;
                match resolved {
                    Some(&Resolved { time_ns, object: found, size, thread, call: kind }) => {
                        expected_ns = call.time_ns.max(expected_ns);
                        let expected = (expected_ns, object, call.size, number, call.call);
                        assert_eq!((time_ns, Some(ObjectId(found)), size, thread, kind), expected, "round {round}");
                    }
                    None => assert_eq!(apply(&mut at_once), object, "round {round}"),
                }
                assert_eq!(at_once.is_doubtful(call.address), single.is_doubtful(call.address), "round {round}");
            }
        }
        assert!(known > 40_000, "only {known} calls were known");
    }
}

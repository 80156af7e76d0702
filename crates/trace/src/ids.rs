//! Dense object ids, recycled last-freed-first.
//!
//! The writer and the reader of a trace run the same recycler. So the ids of allocations are not stored, and every id
//! that a reader returns is valid by construction.

mod block;

use crate::event::ObjectId;
use block::{CALLS, Followed, Frees, WINDOW};

/// The recycler: a stack of freed ids, and a flag for each id that is set while the id is live.
#[derive(Clone, Debug)]
pub struct ObjectIds {
    /// The stack of freed ids: `top` entries from [`BOTTOM`]. Those before it are [`NO_ID`]. Those after it have no
    /// meaning; there are always enough for a window from entry `top`.
    freed: Vec<u32>,
    top: usize,
    /// By id.
    live: Vec<bool>,
}

/// Larger than every id.
const NO_ID: u32 = u32::MAX;
/// The first entry of the stack.
const BOTTOM: usize = CALLS;

impl Default for ObjectIds {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl ObjectIds {
    /// A recycler without live objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty recycler that allocates no further memory for up to `objects_peak` live objects.
    pub fn with_capacity(objects_peak: u32) -> Self {
        let peak = objects_peak as usize;
        let mut freed = Vec::with_capacity(peak + WINDOW);
        freed.resize(WINDOW, NO_ID);
        ObjectIds { freed, top: 0, live: Vec::with_capacity(peak) }
    }

    /// The id that the next [`ObjectIds::allocate`] returns.
    #[inline(always)]
    pub fn upcoming(&self) -> ObjectId {
        ObjectId(if self.top == 0 { self.peak() } else { self.freed[BOTTOM + self.top - 1] })
    }

    /// Allocates an id: the most recently freed one, or the next unused one. `None` if all 2^32 - 1 ids are live.
    #[inline(always)]
    pub fn allocate(&mut self) -> Option<ObjectId> {
        if self.top == 0 && !self.grow(u32::MAX) {
            return None;
        }
        self.top -= 1;
        let id = self.freed[BOTTOM + self.top];
        self.live[id as usize] = true;
        Some(ObjectId(id))
    }

    /// Frees an id. Returns false and changes nothing if it was not live.
    #[inline(always)]
    pub fn release(&mut self, object: ObjectId) -> bool {
        let Some(live @ true) = self.live.get_mut(object.0 as usize) else {
            return false;
        };
        *live = false;
        self.freed[BOTTOM + self.top] = object.0;
        self.top += 1;
        true
    }

    /// Performs consecutive calls until one cannot be performed: it is above `free`, the code of a free; the object
    /// that it frees is not live; or its allocation would raise the peak above `peak_max`. Takes the objects of the
    /// frees from the front of `freed`, and writes the object of each call to `objects`, which is as long as `calls`.
    /// Returns the number of calls performed. `free` is below 8, and no code is above 127.
    pub(crate) fn follow(
        &mut self,
        calls: &[u8],
        free: u8,
        peak_max: u32,
        freed: &mut &[u32],
        objects: &mut [u32],
    ) -> usize {
        let mut done = 0;
        while done < calls.len() {
            done += self.follow_blocks(&calls[done..], free, freed, &mut objects[done..]);
            let few = calls.len().min(done + CALLS);
            let performed = self.follow_singly(&calls[done..few], free, peak_max, freed, &mut objects[done..few]);
            done += performed;
            if done < few {
                break;
            }
        }
        done
    }

    /// As [`follow`](Self::follow), for whole blocks of calls. Stops before a block with a call that cannot be
    /// performed without a new id, and if fewer objects to free are left than a block has calls. Not inlined, so that
    /// its variables are in registers.
    #[inline(never)]
    fn follow_blocks(&mut self, calls: &[u8], free: u8, freed: &mut &[u32], objects: &mut [u32]) -> usize {
        let mut done = 0;
        for (calls, objects) in calls.as_chunks().0.iter().zip(objects.as_chunks_mut().0) {
            let (Some(frees), Some(ahead)) = (Frees::of(calls, free), freed.first_chunk()) else { break };
            let Some(window) = self.freed.get_mut(self.top..).and_then(<[u32]>::first_chunk_mut) else { break };
            let Some(followed) = frees.follow(ahead, window, &mut self.live, objects) else { break };
            let Followed { frees, taken, added } = followed;
            self.top = self.top - taken + added;
            *freed = &freed[frees.min(CALLS)..];
            done += CALLS;
        }
        done
    }

    /// As [`follow`](Self::follow), one by one.
    fn follow_singly(
        &mut self,
        calls: &[u8],
        free: u8,
        peak_max: u32,
        freed: &mut &[u32],
        objects: &mut [u32],
    ) -> usize {
        for (done, (&call, object)) in calls.iter().zip(objects).enumerate() {
            let id = if call == free {
                let id = freed.first().copied().filter(|&id| self.release(ObjectId(id)));
                id.inspect(|_| *freed = &freed[1..])
            } else if call < free && (self.top > 0 || self.grow(peak_max)) {
                self.allocate().map(|id| id.0)
            } else {
                None
            };
            match id {
                Some(id) => *object = id,
                None => return done,
            }
        }
        calls.len()
    }

    /// Whether an id is live.
    #[inline(always)]
    pub fn is_live(&self, object: ObjectId) -> bool {
        self.live.get(object.0 as usize).is_some_and(|&live| live)
    }

    /// Peak number of live ids: the length of a table indexed by id.
    pub fn peak(&self) -> u32 {
        self.live.len() as u32
    }

    /// Number of live ids.
    pub fn live(&self) -> u32 {
        self.peak() - self.top as u32
    }

    /// Removes all objects. The memory is kept for reuse.
    pub fn clear(&mut self) {
        self.freed.truncate(WINDOW);
        self.top = 0;
        self.live.clear();
    }

    /// Adds an unused id to the empty stack. Returns false and changes nothing if `peak_max` ids exist.
    #[cold]
    fn grow(&mut self, peak_max: u32) -> bool {
        let id = self.peak();
        if id >= peak_max {
            return false;
        }
        self.live.push(false);
        self.freed.push(0);
        self.freed[BOTTOM] = id;
        self.top = 1;
        true
    }
}

/// A set of ids.
#[derive(Clone, Debug, Default)]
pub struct ObjectSet {
    bits: Vec<u64>,
}

impl ObjectSet {
    /// An empty set with room for the ids below `end`.
    pub(crate) fn with_room(end: u32) -> Self {
        ObjectSet { bits: vec![0; (end as usize).div_ceil(64)] }
    }

    /// Adds an id, which must be below the `end` of [`ObjectSet::with_room`].
    pub(crate) fn insert(&mut self, id: u32) {
        if let Some(bits) = self.bits.get_mut(id as usize / 64) {
            *bits |= 1 << (id % 64);
        }
    }

    /// Whether the set was created without room.
    pub(crate) fn has_no_room(&self) -> bool {
        self.bits.is_empty()
    }

    /// Whether the id is in the set.
    #[inline]
    pub fn contains(&self, object: ObjectId) -> bool {
        self.bits.get(object.0 as usize / 64).is_some_and(|bits| bits >> (object.0 % 64) & 1 == 1)
    }

    /// Removes the id, if it is in the set.
    #[inline(always)]
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(bits) = self.bits.get_mut(object.0 as usize / 64) {
            *bits &= !(1 << (object.0 % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u8 = 6;

    /// The oracle: performs one call with the methods for single calls.
    fn perform(ids: &mut ObjectIds, call: u8, peak_max: u32, freed: &mut &[u32]) -> Option<u32> {
        if call == FREE {
            let (&id, rest) = freed.split_first()?;
            ids.release(ObjectId(id)).then(|| *freed = rest)?;
            return Some(id);
        }
        let is_new = ids.live() == ids.peak();
        if call > FREE || is_new && ids.peak() >= peak_max { None } else { ids.allocate().map(|id| id.0) }
    }

    /// Random calls, some of which cannot be performed: dead objects, objects that do not exist, the same object twice,
    /// other codes, too few objects to free, too many objects.
    #[test]
    fn calls_are_followed_as_one_by_one() {
        let mut seed = 881_000u64;
        let mut draw = |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % u64::from(below)) as u32
        };
        for round in 0..3000 {
            let (mut ids, mut one_by_one) = (ObjectIds::new(), ObjectIds::new());
            let (peak_max, faults) = (1 + draw(60), draw(3));
            for _ in 0..6 {
                let mut live: Vec<u32> = (0..ids.peak()).filter(|&id| ids.is_live(ObjectId(id))).collect();
                let calls: Vec<u8> = (0..draw(80))
                    .map(|_| match draw(200) {
                        0 if faults > 0 => FREE + 1 + draw(18) as u8,
                        _ if draw(2) == 0 => FREE,
                        _ => draw(6) as u8,
                    })
                    .collect();
                let freed: Vec<u32> = (0..draw(60))
                    .map(|_| match draw(60) {
                        0 if faults > 1 => [draw(100), u32::MAX][draw(2) as usize],
                        _ if live.is_empty() => draw(peak_max),
                        _ => live.swap_remove(draw(live.len() as u32) as usize),
                    })
                    .collect();
                let (mut left, mut left_one_by_one) = (freed.as_slice(), freed.as_slice());
                let mut objects = vec![0; calls.len()];
                let done = ids.follow(&calls, FREE, peak_max, &mut left, &mut objects);
                let expected: Vec<u32> = calls
                    .iter()
                    .map_while(|&call| perform(&mut one_by_one, call, peak_max, &mut left_one_by_one))
                    .collect();
                assert_eq!(objects[..done], expected, "round {round}");
                assert_eq!(left, left_one_by_one, "round {round}");
                assert_eq!((ids.peak(), ids.live()), (one_by_one.peak(), one_by_one.live()), "round {round}");
                let is_same = |id| ids.is_live(ObjectId(id)) == one_by_one.is_live(ObjectId(id));
                assert!((0..ids.peak()).all(is_same), "round {round}");
                assert_eq!(ids.upcoming(), one_by_one.upcoming(), "round {round}");
            }
        }
    }
}

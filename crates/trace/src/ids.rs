//! Dense object ids, recycled last-freed-first.
//!
//! The writer and the reader of a trace run the same recycler. So the ids of allocations are not stored, and every id
//! that a reader returns is valid by construction.

use crate::event::ObjectId;

/// The recycler: a stack of freed ids, and a flag for each id that is set while the id is live.
#[derive(Clone, Debug)]
pub struct ObjectIds {
    /// The stack of freed ids in entries 1 to `top`. Entry 0 is [`NO_ID`]. The other entries have no meaning; there is
    /// always one of them, which [`ObjectIds::follow`] may write.
    freed: Vec<u32>,
    top: usize,
    /// By id.
    live: Vec<bool>,
}

/// Larger than every id.
const NO_ID: u32 = u32::MAX;
/// Entries of the stack besides one for each id: entry 0, and the one above the top.
const EXTRA_ENTRIES: usize = 2;

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
        let mut freed = Vec::with_capacity(peak + EXTRA_ENTRIES);
        freed.resize(EXTRA_ENTRIES, NO_ID);
        ObjectIds { freed, top: 0, live: Vec::with_capacity(peak) }
    }

    /// The id that the next [`ObjectIds::allocate`] returns.
    #[inline(always)]
    pub fn upcoming(&self) -> ObjectId {
        ObjectId(if self.top == 0 { self.peak() } else { self.freed[self.top] })
    }

    /// Allocates an id: the most recently freed one, or the next unused one. `None` if all 2^32 - 1 ids are live.
    #[inline(always)]
    pub fn allocate(&mut self) -> Option<ObjectId> {
        if self.top == 0 && !self.grow(u32::MAX) {
            return None;
        }
        let id = self.freed[self.top];
        self.top -= 1;
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
        self.top += 1;
        self.freed[self.top] = object.0;
        true
    }

    /// Performs consecutive calls until one cannot be performed: `is_free` is `None` for it, the object that it frees
    /// is not live, or its allocation would raise the peak above `peak_max`. Takes the objects of the frees from the
    /// front of `freed`, and writes the object of each call to `objects`, which is as long as `calls`. Returns the
    /// number of calls performed.
    #[inline(always)]
    pub(crate) fn follow(
        &mut self,
        calls: &[u8],
        is_free: impl Fn(u8) -> Option<bool>,
        peak_max: u32,
        freed: &mut &[u32],
        objects: &mut [u32],
    ) -> usize {
        let mut done = 0;
        loop {
            done += self.follow_recycled(&calls[done..], &is_free, freed, &mut objects[done..]);
            if freed.is_empty() {
                // Only allocations may follow.
                done += self.follow_recycled(&calls[done..], &is_free, &mut [NO_ID].as_slice(), &mut objects[done..]);
            }
            // An allocation without a freed id needs a new one. Nothing else can stop at an empty stack and be performed.
            let needs_id = self.top == 0 && calls.get(done).is_some_and(|&call| is_free(call) == Some(false));
            if !needs_id || !self.grow(peak_max) {
                return done;
            }
        }
    }

    /// As [`follow`](Self::follow), and stops if no id is free, or if `freed` is empty. No branch depends on which calls
    /// are frees: in most traces this cannot be predicted. Not inlined, so that all of its variables are in registers.
    #[inline(never)]
    fn follow_recycled(
        &mut self,
        calls: &[u8],
        is_free: impl Fn(u8) -> Option<bool>,
        freed: &mut &[u32],
        objects: &mut [u32],
    ) -> usize {
        let live = self.live.as_mut_slice();
        let Some(stack) = self.freed.get_mut(..live.len() + EXTRA_ENTRIES) else { return 0 };
        let (mut top, mut left, mut done) = (self.top as u32, *freed, 0);
        for (&call, object) in calls.iter().zip(objects) {
            let Some(frees) = is_free(call) else { break };
            let (at, above) = (top as usize, top as usize + 1);
            if above >= stack.len() {
                break;
            }
            let Some(&to_free) = left.first() else { break };
            let id = std::hint::select_unpredictable(frees, to_free, stack[at]);
            let Some(live) = live.get_mut(id as usize) else { break };
            if *live != frees {
                break;
            }
            *live = !frees;
            // Only a free puts its object there; after an allocation, the entry has no meaning.
            stack[above] = to_free;
            top = top.wrapping_add(2 * u32::from(frees)).wrapping_sub(1);
            left = &left[usize::from(frees)..];
            *object = id;
            done += 1;
        }
        self.top = top as usize;
        *freed = left;
        done
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
        self.freed.truncate(EXTRA_ENTRIES);
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
        self.freed[1] = id;
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

//! Dense object ids, recycled last-freed-first.
//!
//! The writer and the reader of a trace run the same recycler. So the ids of allocations are not stored, and every id
//! that a reader returns is valid by construction.

use crate::event::ObjectId;

/// The recycler: a stack of freed ids, and one bit per id that is set while the id is live.
#[derive(Clone, Debug, Default)]
pub struct ObjectIds {
    dead: Vec<u32>,
    live_bits: Vec<u64>,
    peak: u32,
}

impl ObjectIds {
    /// A recycler without live objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty recycler that allocates no further memory for up to `objects_peak` live objects.
    pub fn with_capacity(objects_peak: u32) -> Self {
        let peak = objects_peak as usize;
        ObjectIds { dead: Vec::with_capacity(peak), live_bits: Vec::with_capacity(peak.div_ceil(64)), peak: 0 }
    }

    /// The id that the next [`ObjectIds::allocate`] returns.
    #[inline(always)]
    pub fn upcoming(&self) -> ObjectId {
        ObjectId(self.dead.last().copied().unwrap_or(self.peak))
    }

    /// Allocates an id: the most recently freed one, or the next unused one. `None` if all 2^32 - 1 ids are live.
    #[inline(always)]
    pub fn allocate(&mut self) -> Option<ObjectId> {
        let id = match self.dead.pop() {
            Some(id) => id,
            None => self.grow()?,
        };
        if let Some(bits) = self.live_bits.get_mut(id as usize / 64) {
            *bits |= 1 << (id % 64);
        }
        Some(ObjectId(id))
    }

    /// Frees an id. Returns false and changes nothing if it was not live.
    #[inline(always)]
    pub fn release(&mut self, object: ObjectId) -> bool {
        let Some(bits) = self.live_bits.get_mut(object.0 as usize / 64) else {
            return false;
        };
        let bit = 1u64 << (object.0 % 64);
        if *bits & bit == 0 {
            return false;
        }
        *bits &= !bit;
        self.dead.push(object.0);
        true
    }

    /// Whether an id is live.
    #[inline(always)]
    pub fn is_live(&self, object: ObjectId) -> bool {
        self.live_bits.get(object.0 as usize / 64).is_some_and(|bits| bits >> (object.0 % 64) & 1 == 1)
    }

    /// Peak number of live ids: the length of a table indexed by id.
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Number of live ids.
    pub fn live(&self) -> u32 {
        self.peak - self.dead.len() as u32
    }

    /// Removes all objects. The memory is kept for reuse.
    pub fn clear(&mut self) {
        self.dead.clear();
        self.live_bits.clear();
        self.peak = 0;
    }

    #[cold]
    fn grow(&mut self) -> Option<u32> {
        if self.peak == u32::MAX {
            return None;
        }
        let id = self.peak;
        self.peak += 1;
        if id.is_multiple_of(64) {
            self.live_bits.push(0);
        }
        Some(id)
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

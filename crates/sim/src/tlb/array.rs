//! One set-associative array with exact LRU replacement.

use std::mem;

use super::geometry::Array;

/// Marks an empty slot. All slots after the last entry of a set are empty.
const EMPTY: u64 = u64::MAX;

/// Keys at the front of a set that are compared and moved one by one, because most accesses find theirs there; and keys
/// compared per step after them: a chunk without branches lets the compiler use vector instructions.
const CHUNK: usize = 8;

/// Entries by set, each set ordered from most to least recently used.
#[derive(Clone, Debug)]
pub(super) struct LruArray {
    keys: Vec<u64>,
    ways: usize,
    set_mask: u64,
}

impl LruArray {
    pub fn new(shape: Array) -> Self {
        Self {
            keys: vec![EMPTY; shape.entries() as usize],
            ways: shape.ways() as usize,
            set_mask: u64::from(shape.sets()) - 1,
        }
    }

    /// Looks `key` up in the set that `number` selects, where it becomes the most recently used. If it was not there, the
    /// least recently used key of a full set is evicted. Returns whether it was there.
    #[inline]
    pub fn access(&mut self, number: u64, key: u64) -> bool {
        move_to_front(self.set(number), key)
    }

    /// Removes a key from the set that `number` selects, if it is there.
    pub fn remove(&mut self, number: u64, key: u64) {
        let set = self.set(number);
        if let Some(place) = position(set, key) {
            set.copy_within(place + 1.., place);
            set[set.len() - 1] = EMPTY;
        }
    }

    /// Removes every key for which `dies` returns true; the others keep their order.
    pub fn retain_not(&mut self, dies: impl Fn(u64) -> bool) {
        for set in self.keys.chunks_exact_mut(self.ways) {
            let mut kept = 0;
            for at in 0..set.len() {
                let key = set[at];
                if key != EMPTY && !dies(key) {
                    set[kept] = key;
                    kept += 1;
                }
            }
            set[kept..].fill(EMPTY);
        }
    }

    fn set(&mut self, number: u64) -> &mut [u64] {
        let start = (number & self.set_mask) as usize * self.ways;
        &mut self.keys[start..start + self.ways]
    }
}

/// Moves a key to the front of a set, whose last key leaves it if the key was not there. Returns whether it was there.
#[inline]
fn move_to_front(set: &mut [u64], key: u64) -> bool {
    let (near, far) = set.split_at_mut(CHUNK.min(set.len()));
    let mut moving = key;
    for slot in near {
        moving = mem::replace(slot, moving);
        if moving == key {
            return true;
        }
    }
    if far.is_empty() {
        return false;
    }
    let place = position(far, key);
    far.copy_within(..place.unwrap_or(far.len() - 1), 1);
    far[0] = moving;
    place.is_some()
}

/// The place of a key among others.
#[inline]
fn position(set: &[u64], key: u64) -> Option<usize> {
    for (at, chunk) in set.chunks(CHUNK).enumerate() {
        if chunk.iter().fold(false, |found, &entry| found | (entry == key)) {
            return chunk.iter().position(|&entry| entry == key).map(|place| at * CHUNK + place);
        }
    }
    None
}

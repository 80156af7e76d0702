//! One set-associative array with exact LRU replacement.

use super::geometry::Array;

/// Marks an empty slot. All slots after the last entry of a set are empty.
const EMPTY: u64 = u64::MAX;

/// Entries compared per step. A chunk without branches lets the compiler use vector instructions.
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

    /// Whether `key` is in the set that `number` selects. If so, it becomes the most recently used.
    #[inline]
    pub fn hit(&mut self, number: u64, key: u64) -> bool {
        let set = self.set(number);
        match position(set, key) {
            Some(at) => {
                set.copy_within(..at, 1);
                set[0] = key;
                true
            }
            None => false,
        }
    }

    /// Inserts a key that is not in its set. Evicts the least recently used key of a full set.
    #[inline]
    pub fn fill(&mut self, number: u64, key: u64) {
        let set = self.set(number);
        set.copy_within(..set.len() - 1, 1);
        set[0] = key;
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

/// The place of a key among others.
#[inline]
pub(super) fn position(set: &[u64], key: u64) -> Option<usize> {
    // Most hits are on the most recently used entry.
    if set.first() == Some(&key) {
        return Some(0);
    }
    for (at, chunk) in set.chunks(CHUNK).enumerate() {
        if chunk.iter().fold(false, |found, &entry| found | (entry == key)) {
            return chunk.iter().position(|&entry| entry == key).map(|place| at * CHUNK + place);
        }
    }
    None
}

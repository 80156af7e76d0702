//! One set-associative array with exact LRU replacement.

use super::geometry::Array;

/// No entry. Behind the last entry of a set there are only these.
const EMPTY: u64 = u64::MAX;

/// Entries compared at once; a whole chunk without branches lets the compiler use vectors.
const CHUNK: usize = 8;

/// Entries by set, in each the one used last first.
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

    /// Whether `key` is in the set that `number` selects; if so it is now the one used last.
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

    /// Puts a key that is not there into its set, in place of the one not used for longest.
    #[inline]
    pub fn fill(&mut self, number: u64, key: u64) {
        let set = self.set(number);
        set.copy_within(..set.len() - 1, 1);
        set[0] = key;
    }

    /// Removes every key that `dies` says so of; the others keep their order.
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

#[inline]
fn position(set: &[u64], key: u64) -> Option<usize> {
    // Most hits are on the entry used last.
    if set[0] == key {
        return Some(0);
    }
    for (at, chunk) in set.chunks(CHUNK).enumerate() {
        if chunk.iter().fold(false, |found, &entry| found | (entry == key)) {
            return chunk.iter().position(|&entry| entry == key).map(|place| at * CHUNK + place);
        }
    }
    None
}

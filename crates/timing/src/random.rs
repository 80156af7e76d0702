//! Random order: splitmix64, equal on all machines.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator. Every seed is valid, and equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must be above 0.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Heads or tails.
    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Puts items in random order; every order is equally likely.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

/// A seed for a user who did not choose one, short enough to type.
pub fn seed_from_time() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Random::new(now.as_nanos() as u64).bits() % 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_equally_likely() {
        let mut random = Random::new(7);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // The standard deviation of each count is 29.
        assert!(counts.values().all(|&count| (880..1120).contains(&count)), "{counts:?}");
    }
}

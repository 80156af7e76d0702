//! Seeded random numbers: splitmix64, equal on all machines.

/// A generator. Every seed is valid, and equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Splitmix64(u64);

impl Splitmix64 {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Splitmix64(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end` - 1; 0 if `end` is 0. The multiplication biases it by less than `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((self.bits() as u128 * end as u128) >> 64) as u64
    }

    /// True with probability `parts` / `whole`.
    pub fn chance(&mut self, parts: u64, whole: u64) -> bool {
        self.below(whole) < parts
    }
}

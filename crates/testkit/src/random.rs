//! Seeded random numbers: xorshift64*, equal on all machines.

/// A generator. Equal seeds give equal numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed, which may be 0.
    pub fn new(seed: u64) -> Random {
        // Mixes the seed, because adjacent seeds must not give similar numbers. The state must not be 0, because it
        // would stay 0.
        Random((seed.wrapping_add(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, which must be above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True with a probability of `of_1000` in a thousand.
    pub fn per_mille(&mut self, of_1000: u64) -> bool {
        self.below(1000) < of_1000
    }

    /// A random element.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A number from 1 to `most`. Each power-of-two range is equally likely.
    pub fn log_uniform(&mut self, most: u64) -> u64 {
        let doublings = u64::from(most.max(1).ilog2()) + 1;
        let doubling = self.below(doublings);
        ((1 << doubling) + self.below(1 << doubling)).min(most)
    }
}

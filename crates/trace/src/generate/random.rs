//! Random number generators: small, seeded, with the same output on every machine.

/// xorshift32 with the shifts 13, 17, 5. The state is never 0.
#[derive(Clone, Debug)]
pub(super) struct Xorshift32(u32);

impl Xorshift32 {
    /// A generator with this seed; `None` for 0, which would produce only zeros.
    pub(super) fn new(seed: u32) -> Option<Self> {
        (seed != 0).then_some(Xorshift32(seed))
    }

    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// splitmix64. Every seed is valid.
#[derive(Clone, Debug)]
pub(crate) struct Splitmix64(u64);

impl Splitmix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Splitmix64(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `end` - 1; 0 if `end` is 0. The multiplication biases it by less than `end` / 2^64.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// True with probability `parts` / `whole`.
    pub(crate) fn chance(&mut self, parts: u64, whole: u64) -> bool {
        self.below(whole) < parts
    }
}

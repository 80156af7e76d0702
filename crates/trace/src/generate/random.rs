//! The random number generator of `random-mixed`: small, seeded, with the same output on every machine.

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

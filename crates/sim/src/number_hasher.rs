//! A fast hash of numbers, such as of pages, which nobody chooses to collide.

use std::hash::Hasher;

use crate::lines::hash_of;

/// Hashes numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 << 8 | u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // A map uses the lowest and the highest bits, and of the lowest a sample leaves few values.
        self.0 = hash_of(number).swap_bytes();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

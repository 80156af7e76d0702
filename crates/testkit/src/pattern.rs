//! The bytes that tests write to blocks. They depend on the object and the offset, so that a check detects blocks that
//! were overwritten, shifted or confused with others.

use std::sync::OnceLock;

use crate::Random;

/// Maximum length of a slice.
pub const SLICE_BYTES: u64 = 4096;
/// A prime, so that equal offsets in different pages differ.
const PERIOD: u64 = 4093;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut random = Random::new(1);
        let period: Vec<u8> = (0..PERIOD).map(|_| 1 + random.below(255) as u8).collect();
        period.repeat((1 + SLICE_BYTES.div_ceil(PERIOD)) as usize)
    })
}

/// The pattern of a tag at `offset`: `bytes` bytes (at most [`SLICE_BYTES`]). No byte is zero.
pub fn slice(tag: u64, offset: u64, bytes: u64) -> &'static [u8] {
    let first = ((u128::from(tag) * 97 + u128::from(offset)) % u128::from(PERIOD)) as usize;
    &table()[first..first + bytes as usize]
}

//! Accesses to cache lines of an [`Area`], one by one: each after the one before, or independent of each other.

use std::hint::black_box;

use crate::area::Area;

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

/// Multiplier and increment of a sequence of numbers modulo a power of two in which each number occurs once.
const MULTIPLIER: u64 = 0x5851_F42D;
const INCREMENT: u64 = 0x1405_7B7F;

/// A cycle through all lines of an area in a random order: each line holds the number of the next one.
pub struct Chase {
    area: Area,
    at: u64,
}

impl Chase {
    /// Links the lines of an area. `random` draws numbers below its argument.
    ///
    /// # Panics
    /// If the area has more than 2^32 lines, or `random` draws a number that is too large.
    pub fn new(area: Area, mut random: impl FnMut(u64) -> u64) -> Chase {
        let lines = area.bytes() / LINE_BYTES;
        let mut next: Vec<u32> = (0..u32::try_from(lines).expect("lines are numbered by 32 bits")).collect();
        // Sattolo's algorithm: swaps with a smaller number only, so that there is one cycle.
        for line in (1..next.len()).rev() {
            next.swap(line, random(line as u64) as usize);
        }
        for (line, &next) in next.iter().enumerate() {
            area.write_word(line as u64 * LINE_BYTES, u64::from(next) * LINE_BYTES);
        }
        Chase { area, at: 0 }
    }

    /// Number of lines.
    pub fn lines(&self) -> u64 {
        self.area.bytes() / LINE_BYTES
    }

    /// Follows the cycle for a number of steps, each a load whose address the one before loaded.
    pub fn follow(&mut self, steps: u64) {
        let mut at = self.at;
        for _ in 0..steps {
            // SAFETY: `at` is 0 or was read from a line that `new` wrote. Nothing else writes to the area, which is ours
            // alone, and `new` wrote only offsets of lines of the area.
            at = unsafe { self.area.word_unchecked(at) };
        }
        self.at = black_box(at);
    }
}

/// Writes to `count` lines of an area in a scattered order; no write depends on another. The area's lines must be a power
/// of two. `start` numbers the first of them, and the number of the next is returned.
///
/// # Panics
/// If the number of lines is no power of two.
pub fn scatter(area: &Area, start: u64, count: u64) -> u64 {
    let lines = area.bytes() / LINE_BYTES;
    assert!(lines.is_power_of_two(), "the lines of an area are scattered by a mask");
    let mut line = start;
    for _ in 0..count {
        line = line.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & (lines - 1);
        // SAFETY: the line is one of the area's.
        unsafe { area.write_unchecked(line * LINE_BYTES) };
    }
    line
}

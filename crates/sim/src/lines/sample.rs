//! Which lines are in a sample.
//!
//! Of each 2^N adjacent lines one is sampled, which a hash of the higher bits of its number selects. A sample contains
//! every coarser one.

use std::ops::Range;

use super::chunks::hash_of;

/// Sampled lines of a chunk: one for each bit of a set.
pub(super) const CHUNK_LINES: u32 = u64::BITS;
/// log2 of that.
pub(super) const CHUNK_SHIFT: u32 = CHUNK_LINES.ilog2();
/// Lowest bits of a line's number that one hash selects.
pub(super) const HASHED_BITS: u32 = 10;

/// Whether a line is in the sample of one line in 2^`shift`.
#[inline(always)]
pub(super) fn is_sampled(line: u64, shift: u32) -> bool {
    let is_selected = |number: u64, bits: u32| (number ^ hash_of(number >> HASHED_BITS)) & ((1 << bits) - 1) == 0;
    is_selected(line, shift.min(HASHED_BITS))
        && (shift <= HASHED_BITS || is_selected(line >> HASHED_BITS, shift - HASHED_BITS))
}

/// The line of the sample of one line in 2^`shift` whose number without the lowest `shift` bits is `sampled`.
#[inline(always)]
pub(super) fn line_of(sampled: u64, shift: u32) -> u64 {
    let select = |higher: u64, bits: u32| {
        let number = higher << bits;
        number | hash_of(number >> HASHED_BITS) & ((1 << bits) - 1)
    };
    if shift <= HASHED_BITS {
        select(sampled, shift)
    } else {
        select(select(sampled, shift - HASHED_BITS), HASHED_BITS)
    }
}

/// The lines of the sample of one line in 2^`shift` from line `first` to line `last`, each without its lowest `shift` bits.
#[inline(always)]
pub(super) fn among(first: u64, last: u64, shift: u32) -> Range<u64> {
    let (start, end) = (first >> shift, last >> shift);
    start + u64::from(line_of(start, shift) < first)..end + u64::from(line_of(end, shift) <= last)
}

/// Lines as a set. At least one.
#[inline(always)]
pub(super) fn bits(lines: &Range<u32>) -> u64 {
    (u64::MAX >> (CHUNK_LINES - (lines.end - lines.start))) << lines.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_adjacent_lines_is_sampled() {
        for shift in [0, 2, 5, 8, 11, 14] {
            let lines = 1 << 40..(1 << 40) + (8 << shift);
            let sampled: Vec<u64> = lines.clone().filter(|&line| is_sampled(line, shift)).collect();
            let expected: Vec<u64> = (0..8).map(|group| line_of((1 << 40 >> shift) + group, shift)).collect();
            assert_eq!(sampled, expected, "one line in 2^{shift}");
            assert!(sampled.iter().all(|&line| is_sampled(line, shift.saturating_sub(3))), "a part of the finer one");
            for first in lines.clone().step_by(5) {
                let last = lines.end - 1 - (first - lines.start) / 2;
                let found = among(first, last.max(first), shift).map(|sampled| line_of(sampled, shift));
                assert!(found.eq(sampled.iter().copied().filter(|line| (first..=last.max(first)).contains(line))));
            }
        }
    }
}

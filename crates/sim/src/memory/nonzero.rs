//! Tracks which bytes of the arena are non-zero: one bit per byte, for policies where only the kernel inspects
//! contents.
//!
//! MADV_FREE preserves contents, but it can split a huge page, and a split drops the zero-filled pages (R10). The bits
//! use memory only where non-zero bytes were written: one eighth of that memory.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use super::zeroed::zeroed_cells;

const WORD_BITS: u64 = u64::BITS as u64;

type Bits = Box<[Cell<u64>]>;

/// The bits, by SuperSlab.
pub(crate) struct NonZero {
    superslab_shift: u32,
    superslabs: Box<[OnceCell<Bits>]>,
}

impl NonZero {
    pub(crate) fn new(superslabs: u32, superslab_shift: u32) -> NonZero {
        NonZero { superslab_shift, superslabs: (0..superslabs).map(|_| OnceCell::new()).collect() }
    }

    /// Sets bytes `at..at + count` of the arena to `byte`.
    #[inline(never)]
    pub(crate) fn write(&self, at: u64, count: u64, byte: u8) {
        let shift = self.superslab_shift;
        let (mut start, end) = (at, at + count);
        while start < end {
            let end_of_part = end.min(((start >> shift) + 1) << shift);
            let superslab = &self.superslabs[(start >> shift) as usize];
            let last = self.index(end_of_part - 1);
            let ones_from = u64::MAX << (start % WORD_BITS);
            let ones_to = u64::MAX >> (WORD_BITS - 1 - (end_of_part - 1) % WORD_BITS);
            if byte != 0 {
                let bits = superslab.get_or_init(|| zeroed_cells((1usize << shift) / WORD_BITS as usize));
                change(&bits[self.index(start)..=last], ones_from, ones_to, |word, mask| word | mask);
            } else if let Some(bits) = superslab.get() {
                change(&bits[self.index(start)..=last], ones_from, ones_to, |word, mask| word & !mask);
            }
            start = end_of_part;
        }
    }

    /// Writes a number to bytes `at..at + 4`. `at` is a multiple of 4.
    pub(crate) fn write_number(&self, at: u64, number: u32) {
        let nonzero = (0..4).fold(0, |bits, byte| bits | u64::from(number >> (8 * byte) & 0xff != 0) << byte);
        let offset = at % WORD_BITS;
        if nonzero != 0 || self.existing(at).is_some() {
            self.word(at, |word| word.set(word.get() & !(0xf << offset) | nonzero << offset));
        }
    }

    /// Copies bytes within the arena.
    #[inline(never)]
    pub(crate) fn copy(&self, to: u64, from: u64, count: u64) {
        let mut done = 0;
        while done < count {
            let step = (WORD_BITS - (to + done) % WORD_BITS).min(count - done);
            let bits = self.bits_at(from + done);
            self.each_word(to + done..to + done + step, |contents, word_at, mask| {
                let shifted = bits << ((to + done) % WORD_BITS);
                if shifted & mask != 0 || contents.existing(word_at).is_some() {
                    contents.word(word_at, |word| word.set(word.get() & !mask | shifted & mask));
                }
            });
            done += step;
        }
    }

    /// Whether any byte of the page at `at` is not zero.
    pub(crate) fn holds_bytes(&self, at: u64) -> bool {
        let bits = self.superslabs.get((at >> self.superslab_shift) as usize).and_then(OnceCell::get);
        let first = self.index(at);
        bits.is_some_and(|bits| bits[first..][..(PAGE_BYTES / WORD_BITS) as usize].iter().any(|word| word.get() != 0))
    }

    /// Calls `visit` for every word of bits that overlaps `range`, with the offset of its first byte and a mask.
    fn each_word(&self, range: Range<u64>, mut visit: impl FnMut(&NonZero, u64, u64)) {
        let mut at = range.start;
        while at < range.end {
            let word_at = at - at % WORD_BITS;
            let end = range.end.min(word_at + WORD_BITS);
            let ones = u64::MAX >> (WORD_BITS - (end - at));
            visit(self, word_at, ones << (at - word_at));
            at = end;
        }
    }

    /// The bits of the 64 bytes from `at`, which need not be a multiple of 64.
    fn bits_at(&self, at: u64) -> u64 {
        let word = |word_at: u64| self.existing(word_at).map_or(0, Cell::get);
        let offset = at % WORD_BITS;
        let low = word(at - offset) >> offset;
        if offset == 0 { low } else { low | word(at - offset + WORD_BITS) << (WORD_BITS - offset) }
    }

    fn word(&self, at: u64, change: impl FnOnce(&Cell<u64>)) {
        let bits = self.superslabs[(at >> self.superslab_shift) as usize]
            .get_or_init(|| zeroed_cells((1usize << self.superslab_shift) / WORD_BITS as usize));
        change(&bits[self.index(at)]);
    }

    fn existing(&self, at: u64) -> Option<&Cell<u64>> {
        let bits = self.superslabs.get((at >> self.superslab_shift) as usize)?.get()?;
        Some(&bits[self.index(at)])
    }

    fn index(&self, at: u64) -> usize {
        ((at & ((1 << self.superslab_shift) - 1)) / WORD_BITS) as usize
    }
}

/// Changes words of bits: the masked bits of the first and the last, and all bits of those between.
fn change(words: &[Cell<u64>], first_mask: u64, last_mask: u64, to: impl Fn(u64, u64) -> u64) {
    match words {
        [] => {}
        [word] => word.set(to(word.get(), first_mask & last_mask)),
        [first, between @ .., last] => {
            first.set(to(first.get(), first_mask));
            between.iter().for_each(|word| word.set(to(word.get(), u64::MAX)));
            last.set(to(last.get(), last_mask));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle: a plain array of bytes.
    struct Plain(Vec<u8>);

    impl Plain {
        fn agrees(&self, contents: &NonZero) -> bool {
            self.0.iter().enumerate().all(|(at, &byte)| contents.bits_at(at as u64) & 1 == u64::from(byte != 0))
        }
    }

    #[test]
    fn bits_show_which_bytes_are_non_zero() {
        const SHIFT: u32 = 16;
        let contents = NonZero::new(2, SHIFT);
        let mut plain = Plain(vec![0; 2 << SHIFT]);
        let mut state = 0x5EED_u64;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % limit
        };
        for _ in 0..400 {
            let (at, count) = (below((2 << SHIFT) - 9000), 1 + below(9000));
            let (from, place) = (below((2 << SHIFT) - 9000) as usize, at as usize..(at + count) as usize);
            match below(4) {
                3 => {
                    let number = (0..4).fold(0, |number, byte| number | (below(3) as u32) << (8 * byte));
                    contents.write_number(at / 4 * 4, number);
                    let bytes = number.to_le_bytes();
                    plain.0[at as usize / 4 * 4..][..4].copy_from_slice(&bytes);
                }
                0 => {
                    contents.write(at, count, 0xA5);
                    plain.0[place].fill(0xA5);
                }
                1 => {
                    contents.write(at, count, 0);
                    plain.0[place].fill(0);
                }
                // The ranges of a copy never overlap.
                _ if from as u64 >= at + count || from as u64 + count <= at => {
                    contents.copy(at, from as u64, count);
                    plain.0.copy_within(from..from + count as usize, at as usize);
                }
                _ => {}
            }
            assert!(plain.agrees(&contents));
        }
        for page in 0..(2u64 << SHIFT) / PAGE_BYTES {
            let at = (page * PAGE_BYTES) as usize;
            let holds = plain.0[at..at + PAGE_BYTES as usize].iter().any(|&byte| byte != 0);
            assert_eq!(contents.holds_bytes(at as u64), holds, "page {page}");
        }
    }
}

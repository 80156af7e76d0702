//! The arena's bytes, for policies whose allocator reads what a program wrote: headers `light` and `off`.
//!
//! Uses memory only for pages that were written.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use super::zeroed::zeroed_cells;

type SuperSlabBytes = Box<[Cell<u8>]>;

/// The bytes, by SuperSlab.
pub(crate) struct KeptBytes {
    superslab_shift: u32,
    superslabs: Box<[OnceCell<SuperSlabBytes>]>,
}

impl KeptBytes {
    pub(crate) fn new(superslabs: u32, superslab_shift: u32) -> KeptBytes {
        KeptBytes { superslab_shift, superslabs: (0..superslabs).map(|_| OnceCell::new()).collect() }
    }

    /// Sets bytes `at..at + count` of the arena to `byte`.
    pub(crate) fn write(&self, at: u64, count: u64, byte: u8) {
        for (superslab, part) in self.parts(at..at + count) {
            let bytes = &self.superslabs[superslab];
            if byte != 0 {
                self.bytes_of(superslab)[part].iter().for_each(|cell| cell.set(byte));
            } else if let Some(bytes) = bytes.get() {
                // Bytes that are already zero are not written, so that untouched parts of the table use no memory.
                bytes[part].iter().filter(|cell| cell.get() != 0).for_each(|cell| cell.set(0));
            }
        }
    }

    /// Copies bytes within the arena; the ranges do not overlap.
    pub(crate) fn copy(&self, to: u64, from: u64, count: u64) {
        for offset in 0..count {
            let byte = self.byte_at(from + offset);
            if byte != self.byte_at(to + offset) {
                self.write(to + offset, 1, byte);
            }
        }
    }

    /// The byte at `at`.
    pub(crate) fn byte_at(&self, at: u64) -> u8 {
        let bytes = self.superslabs[(at >> self.superslab_shift) as usize].get();
        bytes.map_or(0, |bytes| bytes[(at & ((1 << self.superslab_shift) - 1)) as usize].get())
    }

    /// Whether any byte of the page at `at` is not zero.
    pub(crate) fn holds_bytes(&self, at: u64) -> bool {
        self.parts(at..at + PAGE_BYTES).any(|(superslab, part)| {
            self.superslabs[superslab].get().is_some_and(|bytes| bytes[part].iter().any(|cell| cell.get() != 0))
        })
    }

    fn bytes_of(&self, superslab: usize) -> &SuperSlabBytes {
        self.superslabs[superslab].get_or_init(|| zeroed_cells(1 << self.superslab_shift))
    }

    /// Splits a range by SuperSlab. Each part is relative to the start of its SuperSlab.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let shift = self.superslab_shift;
        (range.start >> shift..range.end.div_ceil(1 << shift)).map(move |superslab| {
            let start = superslab << shift;
            let place = |at: u64| (at.clamp(start, start + (1 << shift)) - start) as usize;
            (superslab as usize, place(range.start)..place(range.end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_agree_with_a_plain_vector() {
        const SHIFT: u32 = 16;
        let kept = KeptBytes::new(2, SHIFT);
        let mut plain = vec![0u8; 2 << SHIFT];
        let steps: [(u64, u64, u8); 4] = [(10, 90_000, 7), (65_000, 2_000, 0), (131_071, 1, 9), (5_000, 1, 3)];
        for (at, count, byte) in steps {
            kept.write(at, count, byte);
            plain[at as usize..(at + count) as usize].fill(byte);
        }
        kept.copy(100_001, 64_900, 700);
        plain.copy_within(64_900..65_600, 100_001);
        assert!(plain.iter().enumerate().all(|(at, &byte)| kept.byte_at(at as u64) == byte));
        let pages = plain.chunks(PAGE_BYTES as usize).map(|page| page.iter().any(|&byte| byte != 0));
        for (page, holds) in pages.enumerate() {
            assert_eq!(kept.holds_bytes(page as u64 * PAGE_BYTES), holds, "page {page}");
        }
    }
}

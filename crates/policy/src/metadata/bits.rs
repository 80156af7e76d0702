//! A bitmap over the slices of a SuperSlab.

use crate::metadata::field::Field;

/// Maximum number of slices in a SuperSlab.
pub const SLICES_MAX: u32 = 512;
const WORDS: usize = (SLICES_MAX / 64) as usize;

/// One bit per slice; all clear when zeroed.
#[repr(C)]
pub struct SliceBits([Field<u64>; WORDS]);

impl SliceBits {
    /// All clear.
    pub const fn new() -> SliceBits {
        SliceBits([const { Field::new(0) }; WORDS])
    }

    /// Whether the bit of `slice` is set.
    #[inline]
    pub fn get(&self, slice: u32) -> bool {
        self.0[(slice / 64) as usize].get() >> (slice % 64) & 1 == 1
    }

    /// The bits, 64 per word.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(Field::get)
    }

    /// Sets or clears the bits of `count` slices from `first`.
    #[inline]
    pub fn put(&self, first: u32, count: u32, value: bool) {
        for slice in first..first + count {
            let word = &self.0[(slice / 64) as usize];
            let mask = 1u64 << (slice % 64);
            word.set(if value { word.get() | mask } else { word.get() & !mask });
        }
    }

    /// Whether the bits of all `count` slices from `first` are set.
    #[inline]
    pub fn all(&self, first: u32, count: u32) -> bool {
        (first..first + count).all(|slice| self.get(slice))
    }

    /// The first slice at or after `from` (below `end`) whose bit equals `value`.
    #[inline]
    pub fn find(&self, from: u32, end: u32, value: bool) -> Option<u32> {
        let mut slice = from;
        while slice < end {
            let raw = self.0[(slice / 64) as usize].get();
            let word = (if value { raw } else { !raw }) >> (slice % 64);
            if word != 0 {
                let found = slice + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            slice = (slice / 64 + 1) * 64;
        }
        None
    }
}

impl Default for SliceBits {
    fn default() -> SliceBits {
        SliceBits::new()
    }
}

//! A bitmap over the units of a SuperSlab.

use crate::field::Field;

/// Most units a SuperSlab can have.
pub const UNITS_MAX: u32 = 512;
const WORDS: usize = (UNITS_MAX / 64) as usize;

/// One bit a unit; all clear when its memory is zero.
#[repr(C)]
pub struct UnitBits([Field<u64>; WORDS]);

impl UnitBits {
    /// All clear.
    pub const fn new() -> UnitBits {
        UnitBits([const { Field::new(0) }; WORDS])
    }

    /// Whether the bit of `unit` is set.
    #[inline]
    pub fn get(&self, unit: u32) -> bool {
        self.0[(unit / 64) as usize].get() >> (unit % 64) & 1 == 1
    }

    /// The bits, 64 a word.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(Field::get)
    }

    /// Sets or clears the bits of `count` units from `first`.
    #[inline]
    pub fn put(&self, first: u32, count: u32, value: bool) {
        for unit in first..first + count {
            let word = &self.0[(unit / 64) as usize];
            let mask = 1u64 << (unit % 64);
            word.set(if value { word.get() | mask } else { word.get() & !mask });
        }
    }

    /// Whether all of `count` units from `first` have their bit set.
    #[inline]
    pub fn all(&self, first: u32, count: u32) -> bool {
        (first..first + count).all(|unit| self.get(unit))
    }

    /// The first unit at or after `from` (below `end`) whose bit equals `value`.
    #[inline]
    pub fn find(&self, from: u32, end: u32, value: bool) -> Option<u32> {
        let mut unit = from;
        while unit < end {
            let raw = self.0[(unit / 64) as usize].get();
            let word = (if value { raw } else { !raw }) >> (unit % 64);
            if word != 0 {
                let found = unit + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            unit = (unit / 64 + 1) * 64;
        }
        None
    }
}

impl Default for UnitBits {
    fn default() -> UnitBits {
        UnitBits::new()
    }
}

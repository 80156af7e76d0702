//! A table of numbers that grows behind a shared reference.

use std::cell::UnsafeCell;
use std::ops::Range;

use hksim_engine::prefetch;

/// The numbers. As cheap to access as a slice; growing may move them.
#[derive(Default)]
pub(crate) struct GrowingTable {
    /// Only the methods below access the vector. None of them returns a reference into it or calls code that could
    /// reach the table, and an `UnsafeCell` is not `Sync`. So while a method holds a reference to the vector, no other
    /// exists.
    numbers: UnsafeCell<Vec<u32>>,
}

impl GrowingTable {
    /// Number `at`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u32 {
        // SAFETY: the only reference, see the field.
        let numbers = unsafe { &*self.numbers.get() };
        numbers[at]
    }

    /// Sets number `at`.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub(crate) fn set(&self, at: usize, number: u32) {
        // SAFETY: the only reference, see the field.
        let numbers = unsafe { &mut *self.numbers.get() };
        numbers[at] = number;
    }

    /// Sets the numbers of a range to 0.
    ///
    /// # Panics
    /// If it is outside the table.
    pub(crate) fn clear(&self, range: Range<usize>) {
        // SAFETY: the only reference, see the field.
        let numbers = unsafe { &mut *self.numbers.get() };
        numbers[range].fill(0);
    }

    /// Appends `count` zeros. Returns the position of the first.
    pub(crate) fn grow(&self, count: usize) -> usize {
        // SAFETY: the only reference, see the field.
        let numbers = unsafe { &mut *self.numbers.get() };
        let first = numbers.len();
        numbers.resize(first + count, 0);
        first
    }

    /// Fetches number `at`, if it exists, into the processor's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        // SAFETY: the only reference, see the field.
        if let Some(number) = unsafe { &*self.numbers.get() }.get(at) {
            prefetch(number);
        }
    }
}

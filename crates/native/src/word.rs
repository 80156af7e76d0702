//! The native remote word.

use std::sync::atomic::{AtomicU64, Ordering};

use hksim_policy::Word;

/// A word that any thread may change.
#[repr(transparent)]
pub struct AtomicWord(AtomicU64);

impl Word for AtomicWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, Ordering::AcqRel)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

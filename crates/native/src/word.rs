//! The atomic word.

use std::sync::atomic::AtomicU64;

use hksim_policy::{Word, order};

/// A word that any thread may change.
#[repr(transparent)]
pub struct AtomicWord(AtomicU64);

impl Word for AtomicWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.0.load(order::LOAD)
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.0.store(value, order::STORE);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, order::SWAP)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, order::EXCHANGE, order::FAILED_EXCHANGE)
    }
}

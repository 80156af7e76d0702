//! Words that threads share.

/// A 64-bit word shared between threads: `AtomicU64` on mmap. The orderings are part of the contract ([`order`]).
pub trait Word {
    /// Acquire load.
    fn load(&self) -> u64;
    /// Release store.
    fn store(&self, value: u64);
    /// Acquire-release swap.
    fn swap(&self, value: u64) -> u64;
    /// Acquire-release compare-and-swap; returns the current value on failure.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
}

/// The orderings of a word's operations, for backends with threads.
pub mod order {
    use core::sync::atomic::Ordering;

    /// Ordering of [`load`](super::Word::load).
    pub const LOAD: Ordering = Ordering::Acquire;
    /// Ordering of [`store`](super::Word::store).
    pub const STORE: Ordering = Ordering::Release;
    /// Ordering of [`swap`](super::Word::swap).
    pub const SWAP: Ordering = Ordering::AcqRel;
    /// Ordering of a successful [`compare_exchange`](super::Word::compare_exchange).
    pub const EXCHANGE: Ordering = Ordering::AcqRel;
    /// Ordering of a failed [`compare_exchange`](super::Word::compare_exchange).
    pub const FAILED_EXCHANGE: Ordering = Ordering::Acquire;
}

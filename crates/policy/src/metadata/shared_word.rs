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

    /// Of [`load`](super::Word::load).
    pub const LOAD: Ordering = Ordering::Acquire;
    /// Of [`store`](super::Word::store).
    pub const STORE: Ordering = Ordering::Release;
    /// Of [`swap`](super::Word::swap).
    pub const SWAP: Ordering = Ordering::AcqRel;
    /// Of a [`compare_exchange`](super::Word::compare_exchange) that succeeds.
    pub const EXCHANGE: Ordering = Ordering::AcqRel;
    /// The ordering of a failed exchange.
    pub const FAILED_EXCHANGE: Ordering = Ordering::Acquire;
}

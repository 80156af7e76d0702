//! What threads share.

/// A 64-bit word shared between threads. Natively `AtomicU64`; orderings are part of the contract.
pub trait Word {
    /// Acquire load.
    fn load(&self) -> u64;
    /// Release store.
    fn store(&self, value: u64);
    /// Acquire-release swap.
    fn swap(&self, value: u64) -> u64;
    /// Acquire-release compare-and-swap; the value found on failure.
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64>;
}

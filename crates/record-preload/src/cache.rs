//! A lock-free cache, shared by threads and signal handlers.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(16))]
struct Entry {
    /// Key xor value: a reader that sees halves of two entries gets a key that never matches.
    mixed: AtomicU64,
    value: AtomicU64,
}

/// Values by key; drops entries when it is full. Keys and values are not 0. All zero is an empty cache.
#[repr(C, align(64))]
pub struct Cache<const ENTRIES: usize>(UnsafeCell<[Entry; ENTRIES]>);

// SAFETY: everything in it is atomic.
unsafe impl<const ENTRIES: usize> Sync for Cache<ENTRIES> {}

impl<const ENTRIES: usize> Cache<ENTRIES> {
    /// An empty cache. `ENTRIES` is a power of two.
    pub const fn new() -> Self {
        assert!(ENTRIES.is_power_of_two());
        // SAFETY: all zero is a valid value of atomics.
        Self(UnsafeCell::new(unsafe { core::mem::zeroed() }))
    }

    /// The first place of a key; the second is its neighbour in the cache line.
    #[inline(always)]
    const fn place(key: u64) -> usize {
        (mix(key) >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    #[inline(always)]
    fn entry(&self, place: usize) -> &Entry {
        // SAFETY: places are below ENTRIES, and the entry is atomic all through.
        unsafe { (*self.0.get()).get_unchecked(place & (ENTRIES - 1)) }
    }

    /// The value stored under `key`.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<u64> {
        let place = Self::place(key);
        self.entry(place).value_of(key).or_else(|| self.entry(place ^ 1).value_of(key))
    }

    /// Stores `value` under `key`, replacing another entry if needed.
    pub fn put(&self, key: u64, value: u64) {
        let place = Self::place(key);
        let is_taken = self.entry(place).value.load(Ordering::Relaxed) != 0;
        let entry = self.entry(place ^ usize::from(is_taken));
        entry.mixed.store(key ^ value, Ordering::Relaxed);
        entry.value.store(value, Ordering::Relaxed);
    }
}

impl Entry {
    #[inline(always)]
    fn value_of(&self, key: u64) -> Option<u64> {
        let value = self.value.load(Ordering::Relaxed);
        (self.mixed.load(Ordering::Relaxed) ^ value == key).then_some(value)
    }
}

/// Spreads a key over 64 bits; the high ones are mixed best.
#[inline(always)]
pub const fn mix(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

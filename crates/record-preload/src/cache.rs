//! A lock-free cache, shared by threads and signal handlers.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

#[repr(C, align(16))]
struct Entry {
    /// Key xor value: a reader that sees one half from each of two entries computes a key that never matches.
    mixed: AtomicU64,
    value: AtomicU64,
}

/// A map that drops entries when it is full. Keys and values are not 0. A cache whose bytes are all zero is empty.
#[repr(C, align(64))]
pub struct Cache<const ENTRIES: usize>(UnsafeCell<[Entry; ENTRIES]>);

// SAFETY: all fields are atomic.
unsafe impl<const ENTRIES: usize> Sync for Cache<ENTRIES> {}

impl<const ENTRIES: usize> Cache<ENTRIES> {
    /// An empty cache. `ENTRIES` is a power of two.
    pub const fn new() -> Self {
        assert!(ENTRIES.is_power_of_two());
        // SAFETY: all zero is a valid value of atomics.
        Self(UnsafeCell::new(unsafe { core::mem::zeroed() }))
    }

    /// The index of the first entry for a key. The second is the neighbouring entry in the same cache line.
    #[inline(always)]
    const fn place(key: u64) -> usize {
        (mix(key) >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    #[inline(always)]
    fn entry(&self, place: usize) -> &Entry {
        // SAFETY: the mask keeps the index below ENTRIES, and all fields of an entry are atomic.
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

/// Hashes a key to 64 bits; the high bits are mixed best.
#[inline(always)]
pub const fn mix(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

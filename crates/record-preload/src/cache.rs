//! A cache that threads and signal handlers share without a lock.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Entries that share a cache line, any of which may hold a key.
const WAYS: usize = 4;

#[repr(C)]
struct Entry {
    /// Key xor value: a reader that sees halves of two entries finds a key nobody asked for.
    mixed: AtomicU64,
    value: AtomicU64,
}

#[repr(C, align(64))]
struct Set([Entry; WAYS]);

/// Values by key; forgets what there is no room for. Keys are not 0, and neither are values.
pub struct Cache<const SETS: usize>(UnsafeCell<[Set; SETS]>);

// SAFETY: everything in it is atomic.
unsafe impl<const SETS: usize> Sync for Cache<SETS> {}

impl<const SETS: usize> Cache<SETS> {
    /// An empty cache. `SETS` is a power of two.
    pub const fn new() -> Self {
        assert!(SETS.is_power_of_two());
        // SAFETY: all zero is a valid value of atomics.
        Self(UnsafeCell::new(unsafe { core::mem::zeroed() }))
    }

    #[inline(always)]
    fn set(&self, key: u64) -> &Set {
        let at = (mix(key) >> (u64::BITS - SETS.trailing_zeros())) as usize;
        // SAFETY: `at` has as many bits as SETS, and the set is atomic all through.
        unsafe { (*self.0.get()).get_unchecked(at) }
    }

    /// The value kept under `key`.
    #[inline(always)]
    pub fn get(&self, key: u64) -> Option<u64> {
        self.set(key).0.iter().find_map(|entry| {
            let value = entry.value.load(Ordering::Relaxed);
            (entry.mixed.load(Ordering::Relaxed) ^ value == key && value != 0).then_some(value)
        })
    }

    /// Keeps `value` under `key`, in place of another if need be.
    pub fn put(&self, key: u64, value: u64) {
        let ways = &self.set(key).0;
        let empty = ways.iter().find(|entry| entry.value.load(Ordering::Relaxed) == 0);
        let entry = empty.unwrap_or(&ways[(mix(key) >> 8) as usize % WAYS]);
        entry.mixed.store(key ^ value, Ordering::Relaxed);
        entry.value.store(value, Ordering::Relaxed);
    }
}

/// Spreads a key over 64 bits, the high ones best.
#[inline(always)]
pub const fn mix(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

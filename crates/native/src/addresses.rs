//! The addresses of SuperSlabs with separate mappings: translates an ordinal to an address, and back.
//!
//! There is a table by ordinal and a hash table by address. Both are filled completely when they are created, so that
//! later uses take no page fault. A measurement creates the tables before it starts, so their cost is not counted.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use hksim_policy::layout::Layout;

/// An ordinal that is not bound.
const UNBOUND: u64 = u64::MAX;
/// A hash slot that ends a probe sequence.
const EMPTY: u64 = u64::MAX;
/// A tombstone: a hash slot whose entry was removed while later slots of the probe sequence may be in use.
const GONE: u64 = u64::MAX - 1;

/// The addresses of a layout's SuperSlabs. Only the holder of the pool's lock changes them; any thread may read them.
pub struct Addresses {
    superslab_shift: u32,
    by_ordinal: Box<[AtomicU64]>,
    /// The hash table. High half: the address divided by the SuperSlab size; low half: the ordinal.
    slots: Box<[AtomicU64]>,
}

fn filled(count: usize, with: u64) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(with)).collect()
}

impl Addresses {
    /// Creates the tables, with nothing bound.
    pub fn new(layout: &Layout) -> Addresses {
        let ordinals = layout.ordinals() as usize;
        Addresses {
            superslab_shift: layout.superslab_shift,
            by_ordinal: filled(ordinals, UNBOUND),
            slots: filled((2 * ordinals).next_power_of_two(), EMPTY),
        }
    }

    /// Binds SuperSlabs to adjacent addresses, starting at `address`.
    pub(crate) fn bind(&self, first: u32, count: u32, address: u64) {
        for (ordinal, address) in (first..first + count).zip((address..).step_by(1 << self.superslab_shift)) {
            self.by_ordinal[ordinal as usize].store(address, Ordering::Relaxed);
            let place = address >> self.superslab_shift;
            let free = self.probe(place).find(|&slot| self.slots[slot].load(Ordering::Relaxed) >= GONE);
            if let Some(slot) = free {
                self.slots[slot].store(place << 32 | u64::from(ordinal), Ordering::Release);
            }
        }
    }

    /// Removes the bindings of SuperSlabs.
    pub(crate) fn unbind(&self, first: u32, count: u32) {
        for ordinal in first..first + count {
            let address = self.by_ordinal[ordinal as usize].swap(UNBOUND, Ordering::Relaxed);
            if let Some(slot) = self.slot_of(address) {
                self.slots[slot].store(GONE, Ordering::Release);
                self.sweep(slot);
            }
        }
    }

    /// If the slot after a tombstone is empty, clears the tombstone and those directly before it.
    fn sweep(&self, mut slot: usize) {
        let mask = self.slots.len() - 1;
        if self.slots[(slot + 1) & mask].load(Ordering::Relaxed) != EMPTY {
            return;
        }
        while self.slots[slot].load(Ordering::Relaxed) == GONE {
            self.slots[slot].store(EMPTY, Ordering::Release);
            slot = slot.wrapping_sub(1) & mask;
        }
    }

    /// The slots of the probe sequence of `place` (an address divided by the SuperSlab size), in order.
    fn probe(&self, place: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing spreads neighbouring addresses.
        let home = (place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
        (0..=mask).map(move |step| home.wrapping_add(step) & mask)
    }

    fn slot_of(&self, address: u64) -> Option<usize> {
        let place = address >> self.superslab_shift;
        for slot in self.probe(place) {
            match self.slots[slot].load(Ordering::Acquire) {
                EMPTY => return None,
                found if found != GONE && found >> 32 == place => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// The address of an ordinal, if it is bound.
    #[inline]
    pub fn address_of(&self, ordinal: u32) -> Option<u64> {
        Some(self.by_ordinal[ordinal as usize].load(Ordering::Relaxed)).filter(|&address| address != UNBOUND)
    }

    /// The ordinal of the SuperSlab that starts at an address.
    #[inline]
    pub fn ordinal_at(&self, address: u64) -> Option<u32> {
        self.slot_of(address).map(|slot| self.slots[slot].load(Ordering::Acquire) as u32)
    }

    /// The first byte of a SuperSlab; dangling if it is not bound.
    #[inline]
    pub(crate) fn superslab(&self, ordinal: u32) -> NonNull<u8> {
        let address = self.address_of(ordinal).unwrap_or(0) as usize;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap_or(NonNull::dangling())
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        for ordinal in 0..self.by_ordinal.len() as u32 {
            if self.address_of(ordinal).is_some() {
                // SAFETY: the allocator made this mapping, and the SuperSlab is no longer in use.
                unsafe { libc::munmap(self.superslab(ordinal).as_ptr().cast(), 1 << self.superslab_shift) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use hksim_policy::Policy;
    use hksim_policy::geometry::RunGeometry;
    use hksim_policy::vocabulary::Align;

    /// Compares the tables with a `BTreeMap` until slots have been reused many times.
    #[test]
    fn finds_exactly_the_bound_addresses() {
        let geometry = RunGeometry::new(&Policy::default()).unwrap();
        let addresses = Addresses::new(&Layout::new(&geometry, 64 << 20).with_align(Align::Trim));
        let mut bound: BTreeMap<u32, u64> = BTreeMap::new();
        let mut seed = 7u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..20_000 {
            let ordinal = draw(32) as u32;
            match bound.remove(&ordinal) {
                Some(_) => addresses.unbind(ordinal, 1),
                None => {
                    let address = 0x7f00_0000_0000 + (draw(200) << 21);
                    if !bound.values().any(|&other| other == address) {
                        addresses.bind(ordinal, 1, address);
                        bound.insert(ordinal, address);
                    }
                }
            }
            for place in 0..200u64 {
                let address = 0x7f00_0000_0000 + (place << 21);
                let ordinal = bound.iter().find(|(_, at)| **at == address).map(|(ordinal, _)| *ordinal);
                assert_eq!(addresses.ordinal_at(address), ordinal, "round {round}");
            }
        }
        let left: Vec<u32> = bound.into_keys().collect();
        left.into_iter().for_each(|ordinal| addresses.unbind(ordinal, 1));
    }
}

//! A map from address to a 32-bit number: open addressing with linear probing, keys above 0 in one array.

/// Cells of an empty map; a power of two.
const CELLS_MIN: usize = 1024;

#[cfg(test)]
thread_local! {
    /// Cells looked at in searches.
    pub(super) static PROBES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The map. Address 0 is stored outside the array, as 0 marks an empty cell there.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// (address, number) cells; address 0: empty. The length is a power of two.
    cells: Vec<(u64, u32)>,
    used: usize,
    of_zero: Option<u32>,
}

impl AddressMap {
    pub(super) fn new() -> Self {
        AddressMap::with_room(0)
    }

    /// A map that does not grow up to this number of addresses.
    ///
    /// A map that is filled from another in cell order must be created with this: in a smaller array the first
    /// addresses all hash to the same few cells.
    pub(super) fn with_room(address_map: usize) -> Self {
        let cells = (address_map * 2).next_power_of_two().max(CELLS_MIN);
        AddressMap { cells: vec![(0, 0); cells], used: 0, of_zero: None }
    }

    /// Number of addresses.
    pub(super) fn len(&self) -> usize {
        self.used + usize::from(self.of_zero.is_some())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0 && self.of_zero.is_none()
    }

    /// Every address with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let cells = self.cells.iter().copied().filter(|&(address, _)| address != 0);
        cells.chain(self.of_zero.map(|number| (0, number)))
    }

    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<u32> {
        if address == 0 {
            return self.of_zero;
        }
        let (found, number) = self.cells[self.find(address)];
        (found == address).then_some(number)
    }

    /// Adds an address. Returns false and changes nothing if the map already has it.
    #[inline(always)]
    pub(super) fn insert_new(&mut self, address: u64, number: u32) -> bool {
        if address == 0 || (self.used + 1) * 2 > self.cells.len() {
            let new = self.get(address).is_none();
            if new {
                self.insert(address, number);
            }
            return new;
        }
        let cell = self.find(address);
        let new = self.cells[cell].0 == 0;
        if new {
            self.used += 1;
            self.cells[cell] = (address, number);
        }
        new
    }

    /// Adds an address that is not in the map.
    pub(super) fn insert(&mut self, address: u64, number: u32) {
        if address == 0 {
            self.of_zero = Some(number);
            return;
        }
        if (self.used + 1) * 2 > self.cells.len() {
            self.grow();
        }
        let cell = self.find(address);
        self.used += (self.cells[cell].0 == 0) as usize;
        self.cells[cell] = (address, number);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, address: u64) -> Option<u32> {
        if address == 0 {
            return self.of_zero.take();
        }
        let cell = self.find(address);
        let (found, number) = self.cells[cell];
        if found == 0 {
            return None;
        }
        self.used -= 1;
        self.close_gap(cell);
        Some(number)
    }

    /// The cell of the address, or the empty one where it would go. At least half of the cells are empty, so the loop
    /// ends.
    #[inline(always)]
    fn find(&self, address: u64) -> usize {
        let cells = self.cells.as_slice();
        let mask = cells.len() - 1;
        let mut cell = self.home(address);
        loop {
            #[cfg(test)]
            PROBES.set(PROBES.get() + 1);
            let found = cells[cell & mask].0;
            if found == address || found == 0 {
                return cell;
            }
            cell = (cell + 1) & mask;
        }
    }

    /// Fibonacci hashing: the top bits of the product depend on all bits of the address.
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        let bits = self.cells.len().trailing_zeros();
        (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
    }

    /// Empties a cell and moves later cells up, so that searches still find them and no tombstone is needed.
    #[inline(always)]
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.cells.len() - 1;
        let mut cell = gap;
        loop {
            cell = (cell + 1) & mask;
            let (address, _) = self.cells[cell];
            if address == 0 {
                break;
            }
            let from_home = cell.wrapping_sub(self.home(address)) & mask;
            if from_home >= cell.wrapping_sub(gap) & mask {
                self.cells[gap] = self.cells[cell];
                gap = cell;
            }
        }
        self.cells[gap] = (0, 0);
    }

    #[cold]
    fn grow(&mut self) {
        let doubled = vec![(0, 0); self.cells.len() * 2];
        for (address, number) in std::mem::replace(&mut self.cells, doubled) {
            if address != 0 {
                let cell = self.find(address);
                self.cells[cell] = (address, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn agrees_with_a_hash_map() {
        let (mut map, mut oracle) = (AddressMap::new(), HashMap::new());
        let mut random = 88_172_645_463_325_252u64;
        for step in 0..300_000u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = (random % 4000) * 16; // few keys: long runs, many removals
            if random >> 63 == 0 {
                assert_eq!(map.remove(address), oracle.remove(&address), "step {step}");
            } else if map.get(address).is_none() {
                map.insert(address, step);
                oracle.insert(address, step);
            }
            assert_eq!(map.get(address), oracle.get(&address).copied(), "step {step}");
        }
    }
}

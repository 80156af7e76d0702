//! Where SuperSlabs lie that have maps of their own: a kernel that answers `mmap` with whatever it likes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::Random;

/// Bytes of the address space that maps are placed in: small enough that some are neighbours by chance.
const SPACE_BYTES: u64 = 1 << 34;

/// The maps, and which SuperSlab lies where in them.
pub(crate) struct Places {
    superslab_shift: u32,
    /// Mapped ranges: end by start.
    maps: RefCell<BTreeMap<u64, u64>>,
    by_ordinal: Vec<Cell<Option<u64>>>,
}

impl Places {
    pub(crate) fn new(ordinals: u32, superslab_shift: u32) -> Places {
        Places { superslab_shift, maps: RefCell::default(), by_ordinal: vec![Cell::new(None); ordinals as usize] }
    }

    fn is_free(&self, range: &Range<u64>) -> bool {
        self.maps.borrow().range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start)
    }

    /// Maps bytes somewhere: on any page, now and then at a multiple of a SuperSlab.
    pub(crate) fn map(&self, bytes: u64, random: &mut Random) -> Option<u64> {
        (0..100).find_map(|_| {
            let step = if random.per_mille(300) { 1 << self.superslab_shift } else { PAGE_BYTES };
            let start = (1 + random.below(SPACE_BYTES / step)) * step;
            self.is_free(&(start..start + bytes)).then(|| {
                self.maps.borrow_mut().insert(start, start + bytes);
                start
            })
        })
    }

    /// Unmaps bytes, all of which are mapped.
    #[track_caller]
    pub(crate) fn unmap(&self, start: u64, bytes: u64) {
        let (mut maps, end) = (self.maps.borrow_mut(), start + bytes);
        let of = maps.range(..=start).next_back().map(|(&first, &last)| (first, last));
        let Some((first, last)) = of.filter(|&(_, last)| end <= last) else {
            panic!("munmap of {start:#x}..{end:#x}, which is not on one map");
        };
        maps.remove(&first);
        maps.extend([(first, start), (end, last)].into_iter().filter(|(first, last)| first < last));
    }

    /// Binds a SuperSlab.
    #[track_caller]
    pub(crate) fn bind(&self, ordinal: u32, address: u64) {
        let end = address + (1 << self.superslab_shift);
        assert!(address.is_multiple_of(1 << self.superslab_shift), "SuperSlab {ordinal} at {address:#x}: not aligned");
        let maps = self.maps.borrow();
        let is_mapped = maps.range(..=address).next_back().is_some_and(|(_, &last)| end <= last);
        assert!(is_mapped, "SuperSlab {ordinal} at {address:#x}: nothing is mapped there");
        let is_taken = self.by_ordinal.iter().any(|other| other.get() == Some(address));
        assert!(!is_taken, "SuperSlab {ordinal} at {address:#x}: another one is there");
        let before = self.by_ordinal[ordinal as usize].replace(Some(address));
        assert_eq!(before, None, "SuperSlab {ordinal} is bound twice");
    }

    /// Unbinds a SuperSlab; whether its memory is still mapped.
    #[track_caller]
    pub(crate) fn unbind(&self, ordinal: u32) {
        assert!(self.by_ordinal[ordinal as usize].take().is_some(), "SuperSlab {ordinal} is unbound, but not bound");
    }

    /// Where a SuperSlab lies.
    #[track_caller]
    pub(crate) fn address_of(&self, ordinal: u32) -> u64 {
        match self.by_ordinal[ordinal as usize].get() {
            Some(address) => address,
            None => panic!("SuperSlab {ordinal} is asked for, but bound nowhere"),
        }
    }

    /// Every range of the arena that a call is made on must lie on SuperSlabs that are bound side by side.
    #[track_caller]
    pub(crate) fn expect_side_by_side(&self, start: u64, bytes: u64) {
        let ordinals =
            (start >> self.superslab_shift) as u32..(start + bytes).div_ceil(1 << self.superslab_shift) as u32;
        let first = self.address_of(ordinals.start);
        for (ordinal, address) in ordinals.zip((first..).step_by(1 << self.superslab_shift)) {
            assert_eq!(
                self.address_of(ordinal),
                address,
                "a call on SuperSlab {ordinal} and on one that lies elsewhere"
            );
        }
    }

    /// Bytes that are mapped and that no SuperSlab lies on.
    pub(crate) fn unbound_bytes(&self) -> u64 {
        let mapped: u64 = self.maps.borrow().iter().map(|(first, last)| last - first).sum();
        let bound = self.by_ordinal.iter().filter(|address| address.get().is_some()).count() as u64;
        mapped - (bound << self.superslab_shift)
    }
}

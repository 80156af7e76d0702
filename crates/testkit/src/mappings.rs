//! The separate mappings of SuperSlabs, at random addresses: a model of `mmap` without hints.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;

use crate::Random;

/// Size of the address space for mappings: small enough that some are adjacent by chance.
const SPACE_BYTES: u64 = 1 << 34;

/// The mappings, and the address of each SuperSlab in them.
pub(crate) struct Mappings {
    superslab_shift: u32,
    /// Mapped ranges: end by start.
    mapped: RefCell<BTreeMap<u64, u64>>,
    by_ordinal: Vec<Cell<Option<u64>>>,
}

impl Mappings {
    pub(crate) fn new(ordinals: u32, superslab_shift: u32) -> Mappings {
        Mappings { superslab_shift, mapped: RefCell::default(), by_ordinal: vec![Cell::new(None); ordinals as usize] }
    }

    fn is_free(&self, range: &Range<u64>) -> bool {
        self.mapped.borrow().range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start)
    }

    /// Maps bytes at a random address: a multiple of the page size, or sometimes of the SuperSlab size.
    pub(crate) fn map(&self, bytes: u64, random: &mut Random) -> Option<u64> {
        (0..100).find_map(|_| {
            let step = if random.per_mille(300) { 1 << self.superslab_shift } else { PAGE_BYTES };
            let start = (1 + random.below(SPACE_BYTES / step)) * step;
            self.is_free(&(start..start + bytes)).then(|| {
                self.mapped.borrow_mut().insert(start, start + bytes);
                start
            })
        })
    }

    /// Unmaps a range of one mapping.
    #[track_caller]
    pub(crate) fn unmap(&self, start: u64, bytes: u64) {
        let (mut mapped, end) = (self.mapped.borrow_mut(), start + bytes);
        let around = mapped.range(..=start).next_back().map(|(&first, &last)| (first, last));
        let Some((first, last)) = around.filter(|&(_, last)| end <= last) else {
            panic!("munmap of {start:#x}..{end:#x}, which is not in one mapping");
        };
        mapped.remove(&first);
        mapped.extend([(first, start), (end, last)].into_iter().filter(|(first, last)| first < last));
    }

    /// Places a SuperSlab at an address that is mapped and unused.
    #[track_caller]
    pub(crate) fn bind(&self, ordinal: u32, address: u64) {
        let end = address + (1 << self.superslab_shift);
        assert!(address.is_multiple_of(1 << self.superslab_shift), "SuperSlab {ordinal} at {address:#x}: not aligned");
        let mapped = self.mapped.borrow();
        let is_mapped = mapped.range(..=address).next_back().is_some_and(|(_, &last)| end <= last);
        assert!(is_mapped, "SuperSlab {ordinal} at {address:#x}: nothing is mapped there");
        let is_taken = self.by_ordinal.iter().any(|other| other.get() == Some(address));
        assert!(!is_taken, "SuperSlab {ordinal} at {address:#x}: another SuperSlab is there");
        let before = self.by_ordinal[ordinal as usize].replace(Some(address));
        assert_eq!(before, None, "SuperSlab {ordinal} is bound twice");
    }

    /// Removes a SuperSlab from its address. Its memory may stay mapped.
    #[track_caller]
    pub(crate) fn unbind(&self, ordinal: u32) {
        assert!(
            self.by_ordinal[ordinal as usize].take().is_some(),
            "unbind of SuperSlab {ordinal}, which is not bound"
        );
    }

    /// The address of a SuperSlab.
    #[track_caller]
    pub(crate) fn address_of(&self, ordinal: u32) -> u64 {
        match self.by_ordinal[ordinal as usize].get() {
            Some(address) => address,
            None => panic!("access to SuperSlab {ordinal}, which is not bound"),
        }
    }

    /// Checks that the SuperSlabs of an arena range are contiguous in the address space. A system call on the range
    /// requires this.
    #[track_caller]
    pub(crate) fn expect_side_by_side(&self, start: u64, bytes: u64) {
        let ordinals =
            (start >> self.superslab_shift) as u32..(start + bytes).div_ceil(1 << self.superslab_shift) as u32;
        let first = self.address_of(ordinals.start);
        for (ordinal, address) in ordinals.zip((first..).step_by(1 << self.superslab_shift)) {
            assert_eq!(
                self.address_of(ordinal),
                address,
                "a system call on a range with SuperSlab {ordinal}, which is not contiguous with the first"
            );
        }
    }

    /// Number of mapped bytes that contain no SuperSlab.
    pub(crate) fn unbound_bytes(&self) -> u64 {
        let mapped: u64 = self.mapped.borrow().iter().map(|(first, last)| last - first).sum();
        let bound = self.by_ordinal.iter().filter(|address| address.get().is_some()).count() as u64;
        mapped - (bound << self.superslab_shift)
    }
}

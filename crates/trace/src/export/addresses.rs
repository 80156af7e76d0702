//! Generates addresses for objects, for formats that need them.

use crate::event::ObjectId;

/// The first address. Below are NULL and addresses that no allocator returns.
const FIRST: u64 = 0x1_0000;
/// log2 of the largest alignment used. Larger ones are reduced to it, as they would exhaust the addresses.
const ALIGN_LOG2_MAX: u8 = 31;
/// log2 of the alignment of every address: the alignment of malloc.
const ALIGN_LOG2_MIN: u8 = 4;

/// Gives each live object a unique address with the object's alignment. Addresses are only identifiers: the objects may
/// overlap. The address of a freed object is reused by the next object with the same alignment.
#[derive(Debug, Default)]
pub(super) struct ObjectAddresses {
    /// Address and log2 of the alignment of each object, indexed by id.
    of: Vec<(u64, u8)>,
    /// Addresses of freed objects, by log2 of their alignment.
    dead: Vec<Vec<u64>>,
    end: u64,
}

impl ObjectAddresses {
    /// Assigns an address to a new object.
    pub(super) fn allocate(&mut self, object: ObjectId, align_log2: u8) -> u64 {
        let align_log2 = align_log2.clamp(ALIGN_LOG2_MIN, ALIGN_LOG2_MAX);
        let (at, class) = (object.0 as usize, usize::from(align_log2));
        if self.of.len() <= at {
            self.of.resize(at + 1, (0, 0));
        }
        if self.dead.len() <= class {
            self.dead.resize(class + 1, Vec::new());
        }
        let address = self.dead[class].pop().unwrap_or_else(|| {
            let address = self.end.max(FIRST).next_multiple_of(1 << align_log2);
            self.end = address + (1 << ALIGN_LOG2_MIN);
            address
        });
        self.of[at] = (address, align_log2);
        address
    }

    /// The address of a live object.
    pub(super) fn get(&self, object: ObjectId) -> u64 {
        self.of[object.0 as usize].0
    }

    /// Frees an object and returns its address.
    pub(super) fn free(&mut self, object: ObjectId) -> u64 {
        let (address, align_log2) = self.of[object.0 as usize];
        self.dead[usize::from(align_log2)].push(address);
        address
    }
}

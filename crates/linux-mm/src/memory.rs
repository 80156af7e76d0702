//! State shared by the address spaces of a fork family (a process and its descendants): shared pages, and the hugetlb
//! pool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::charge::Group;
use super::folio::{Folios, SpaceId};
use super::hugetlb::HugetlbPool;

/// Reference counts of base pages and pool pages that more than one process maps. Freed ids are reused.
#[derive(Debug, Default)]
pub(super) struct Frames {
    owners: Vec<u32>,
    free: Vec<u32>,
    extra_owners: u64,
}

impl Frames {
    /// Adds an owner to a page and returns its id. A page without an id is stored with two owners.
    pub fn share(&mut self, frame: Option<u32>) -> u32 {
        self.extra_owners += 1;
        if let Some(id) = frame {
            self.owners[id as usize] += 1;
            return id;
        }
        match self.free.pop() {
            Some(id) => {
                self.owners[id as usize] = 2;
                id
            }
            None => {
                self.owners.push(2);
                (self.owners.len() - 1) as u32
            }
        }
    }

    pub fn is_shared(&self, id: u32) -> bool {
        self.owners[id as usize] > 1
    }

    /// Removes an owner. Returns whether it was the last owner.
    pub fn release(&mut self, id: u32) -> bool {
        self.owners[id as usize] -= 1;
        let was_last = self.owners[id as usize] == 0;
        if was_last {
            self.free.push(id);
        } else {
            self.extra_owners -= 1;
        }
        was_last
    }

    /// Owners of all pages, without one for each page.
    pub fn extra_owners(&self) -> u64 {
        self.extra_owners
    }
}

/// State shared by a fork family.
#[derive(Debug)]
pub(super) struct Memory {
    pub folios: Folios,
    /// Base pages.
    pub frames: Frames,
    /// Pages of the hugetlb pool.
    pub pool_frames: Frames,
    pub pool: HugetlbPool,
    pub group: Group,
    spaces: u32,
}

/// A handle to the state of a fork family, one for each address space in it. The lock is never contended: it exists so
/// that a family can move to another thread.
#[derive(Clone, Debug)]
pub(super) struct SharedMemory(Arc<Mutex<Memory>>);

impl SharedMemory {
    pub fn new(pool: HugetlbPool, group: Group) -> Self {
        let memory = Memory {
            folios: Folios::default(),
            frames: Frames::default(),
            pool_frames: Frames::default(),
            pool,
            group,
            spaces: 0,
        };
        Self(Arc::new(Mutex::new(memory)))
    }

    /// Borrows the state. Drop the guard before the next call.
    pub fn get(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new id within the family.
    pub fn new_space(&self) -> SpaceId {
        let mut memory = self.get();
        memory.spaces += 1;
        SpaceId(memory.spaces)
    }

    /// Whether another address space of the family exists.
    pub fn has_others(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

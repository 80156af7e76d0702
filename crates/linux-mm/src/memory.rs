//! State shared by the address spaces of a fork family (a process and its descendants): shared pages, and the hugetlb
//! pool.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::charge::Group;
use super::folio::{Folios, SpaceId};
use super::hugetlb::HugetlbPool;

/// Reference counts of base pages and pool pages that more than one process maps. Freed ids are reused.
#[derive(Clone, Debug, Default)]
pub(super) struct Frames {
    owners: Vec<u32>,
    free: Vec<u32>,
    extra_owners: u64,
    /// Pages that were shared before they were observed, by page number: processes that fork each other have a page at the
    /// same address. `true` while an owner stands for the processes that are not observed.
    known: HashMap<u64, (u32, bool)>,
    /// The page numbers of `known` by id.
    known_pages: HashMap<u32, u64>,
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

    /// Adds an owner to a page that was shared before it was observed, and returns its id. The first process shares it with
    /// an owner outside the family, whose place the second one takes.
    pub fn share_known(&mut self, page: u64) -> u32 {
        match self.known.get_mut(&page) {
            Some((id, has_stand_in)) if *has_stand_in => {
                *has_stand_in = false;
                *id
            }
            Some(&mut (id, _)) => self.share(Some(id)),
            None => {
                let id = self.share(None);
                self.known.insert(page, (id, true));
                self.known_pages.insert(id, page);
                id
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
            if let Some(page) = self.known_pages.remove(&id) {
                self.known.remove(&page);
            }
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
#[derive(Clone, Debug)]
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
/// that a family can move to another thread. A clone is the state of another family: use [`SharedMemory::handle`] to share
/// it.
#[derive(Debug)]
pub(super) struct SharedMemory(Arc<Mutex<Memory>>);

impl Clone for SharedMemory {
    fn clone(&self) -> Self {
        Self(Arc::new(Mutex::new(self.get().clone())))
    }
}

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

    /// Another handle to the same state.
    pub fn handle(&self) -> Self {
        Self(Arc::clone(&self.0))
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

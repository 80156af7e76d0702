//! What the address spaces of a family - a process and what it forked - have in common: pages they share, and the pool.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use super::folio::{Folios, SpaceId};
use super::hugetlb::HugetlbPool;

/// Small pages and pages of the pool that more than one process maps: how many do. Ids of freed ones are used again.
#[derive(Debug, Default)]
pub(super) struct Frames {
    owners: Vec<u32>,
    free: Vec<u32>,
}

impl Frames {
    /// A page, in the store or not yet, is mapped once more.
    pub fn share(&mut self, frame: Option<u32>) -> u32 {
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

    /// One that mapped the page no longer does; whether it was the last.
    pub fn release(&mut self, id: u32) -> bool {
        self.owners[id as usize] -= 1;
        let was_last = self.owners[id as usize] == 0;
        if was_last {
            self.free.push(id);
        }
        was_last
    }
}

/// The memory of a family.
#[derive(Debug)]
pub(super) struct Memory {
    pub folios: Folios,
    pub frames: Frames,
    pub pool: HugetlbPool,
    spaces: u32,
}

/// A handle to the memory of a family, one for each address space in it.
#[derive(Clone, Debug)]
pub(super) struct SharedMemory(Rc<RefCell<Memory>>);

impl SharedMemory {
    pub fn new(pool: HugetlbPool) -> Self {
        let memory = Memory { folios: Folios::default(), frames: Frames::default(), pool, spaces: 0 };
        Self(Rc::new(RefCell::new(memory)))
    }

    /// To be dropped before anything else asks for it.
    pub fn get(&self) -> RefMut<'_, Memory> {
        self.0.borrow_mut()
    }

    /// A name that no address space of the family has yet.
    pub fn new_space(&self) -> SpaceId {
        let mut memory = self.get();
        memory.spaces += 1;
        SpaceId(memory.spaces)
    }

    /// Whether another address space of the family is alive.
    pub fn has_others(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }
}

//! The program locks its memory (`mlockall`): what the allocator's own memory has to do with it.
//!
//! An arena is mapped whole from the start, so locking all mappings would make all of it present. What is locked instead is what a
//! program's memory is under other allocators: the SuperSlabs that were ever taken, and, if the future is locked too, each
//! further one when it is taken. The allocator's tables are locked page by page as they are touched.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::{ArenaRange, Errno, Locking, Memory, MemoryLock};
use crate::vocabulary::Align;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// `mlockall` with these flags, or `munlockall` without any, for the memory of this allocator and what it will map. The rest of
    /// the process is the world's business ([`Memory::lock_process`]).
    ///
    /// # Errors
    /// What the kernel refused first.
    pub fn lock_memory(&self, lock: MemoryLock) -> Result<(), Errno> {
        let guard = self.mem.lock();
        self.mem.lock_process(lock)?;
        if lock.current {
            self.mem.lock_tables()?;
            self.lock_taken(lock.locking())?;
        }
        drop(guard);
        Ok(())
    }

    /// Locks every SuperSlab that was ever taken.
    fn lock_taken(&self, locking: Locking) -> Result<(), Errno> {
        let high_water = self.mem.pool().high_water.get();
        let shift = self.geometry.superslab_shift();
        let range =
            |first: u32, count: u32| ArenaRange { start: u64::from(first) << shift, bytes: u64::from(count) << shift };
        match self.policy.align {
            Align::Arena if high_water == 0 => Ok(()),
            Align::Arena => self.mem.lock_range(range(0, high_water), locking),
            Align::Trim | Align::Kernel => {
                let bound = (0..high_water).filter(|&ordinal| self.is_bound(ordinal));
                bound.map(|ordinal| range(ordinal, 1)).try_for_each(|range| self.mem.lock_range(range, locking))
            }
        }
    }

    /// SuperSlabs of the arena are taken for the first time: locks them, if the program wants that. Maps that are made then are locked
    /// by the kernel: those of reserved huge pages, and those that SuperSlabs have of their own. Best effort: where the kernel refuses,
    /// they are as good as others, not locked, and counted.
    #[cold]
    pub(crate) fn lock_new(&self, first: u32, end: u32) {
        let is_mapped_later = self.policy.align != Align::Arena || self.policy.huge.is_hugetlb();
        if let Some(locking) = self.mem.locks_future().filter(|_| !is_mapped_later && first < end) {
            let shift = self.geometry.superslab_shift();
            let range = ArenaRange { start: u64::from(first) << shift, bytes: u64::from(end - first) << shift };
            if self.mem.lock_range(range, locking).is_err() {
                let pool = self.mem.pool();
                pool.locks_refused.set(pool.locks_refused.get() + 1);
            }
        }
    }
}

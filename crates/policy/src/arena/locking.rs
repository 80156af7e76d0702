//! Locking of the allocator's memory when the program calls `mlockall`.
//!
//! The whole arena is mapped from the start, so locking all mappings would make all of it resident. The allocator locks
//! only the SuperSlabs that were ever taken and, with `MCL_FUTURE`, each further one when it is taken. With an
//! allocator that maps memory on demand, `mlockall` locks the same set. The allocator's tables are locked on fault.

use crate::allocator::Allocator;
use crate::geometry::Geometry;
use crate::memory::{ArenaRange, Errno, Locking, Memory, MemoryLock};
use crate::policy::vocabulary::Align;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// `mlockall` (or `munlockall` if no flag is set) for the memory that this allocator has mapped and will map. The
    /// backend handles the rest of the process ([`Memory::lock_process`]).
    ///
    /// # Errors
    /// The kernel's first error.
    pub fn lock_memory(&self, lock: MemoryLock) -> Result<(), Errno> {
        let guard = self.mem.lock();
        self.mem.lock_process(lock)?;
        if lock.current {
            self.perform(|_, ops| ops.lock_tables())?;
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
        let lock = |range| self.perform(|_, ops| ops.lock_range(range, locking));
        match self.placement.align {
            Align::Arena if high_water == 0 => Ok(()),
            Align::Arena => lock(range(0, high_water)),
            Align::Trim | Align::Kernel => {
                let bound = (0..high_water).filter(|&ordinal| self.is_bound(ordinal));
                bound.map(|ordinal| range(ordinal, 1)).try_for_each(lock)
            }
        }
    }

    /// Locks SuperSlabs that are taken for the first time, if the program has locked its future memory. Mappings that
    /// are created later are locked by the kernel: those of the hugetlb pool, and separate mappings of SuperSlabs. If
    /// locking fails, the SuperSlabs are used unlocked, and the failure is counted.
    #[cold]
    pub(crate) fn lock_new(&self, first: u32, end: u32) {
        let is_mapped_later =
            || self.placement.align != Align::Arena || self.paging(|paging, _| paging.huge.is_hugetlb());
        if let Some(locking) = self.mem.locks_future().filter(|_| first < end && !is_mapped_later()) {
            let shift = self.geometry.superslab_shift();
            let range = ArenaRange { start: u64::from(first) << shift, bytes: u64::from(end - first) << shift };
            if self.perform(|_, ops| ops.lock_range(range, locking)).is_err() {
                let pool = self.mem.pool();
                pool.locks_refused.set(pool.locks_refused.get() + 1);
            }
        }
    }
}

//! An allocator whose memory a replay observes.

use std::io;
use std::ops::Range;

use hksim_engine::{Fallbacks, Heaps};
use hksim_native::{MmapMemory, Os};
use hksim_policy::memory::MemoryLock;
use hksim_policy::{Allocator, Memory as _, RunGeometry};

use crate::result::Replayed;

/// The SuperSlab allocator on real mappings.
pub(crate) type SuperSlabs<O> = Allocator<MmapMemory<O>, RunGeometry>;

/// An allocator on real mappings whose system calls are made by `O`.
pub(crate) trait Replayable<O>: Heaps {
    /// Passes on the maker of its system calls.
    fn with_os<T>(&self, pass: impl FnOnce(&O) -> T) -> T;

    /// The address range that contains its memory.
    fn addresses(&self) -> Range<u64>;

    /// Calls `each` with the mapped ranges, in the order of their names: the name of the first page, and the pages. Names
    /// are equal in simulation and replay.
    fn each_piece(&self, each: impl FnMut(u64, Range<u64>));

    /// Locks or unlocks its memory as the program did.
    ///
    /// # Errors
    /// `RLIMIT_MEMLOCK` does not permit it.
    fn lock_as(&self, lock: MemoryLock) -> Result<(), io::Error>;

    /// What the kernel refused to lock later, if it refused something.
    fn refused_later(&self) -> Option<String> {
        None
    }

    /// Notes figures of the allocator itself.
    fn note_own(&self, replayed: &mut Replayed);

    /// Whether the kernel chose addresses of its mappings, which the simulation must use.
    fn has_kernel_chosen_addresses(&self) -> bool {
        false
    }
}

impl<O: Os> Replayable<O> for SuperSlabs<O> {
    fn with_os<T>(&self, pass: impl FnOnce(&O) -> T) -> T {
        pass(self.mem.os())
    }

    fn addresses(&self) -> Range<u64> {
        let base = self.mem.base().as_ptr() as u64;
        base..base + self.mem.bytes()
    }

    fn each_piece(&self, mut each: impl FnMut(u64, Range<u64>)) {
        self.mem.pieces().for_each(|(name, pages)| each(name, pages));
    }

    fn lock_as(&self, lock: MemoryLock) -> Result<(), io::Error> {
        self.lock_memory(lock).map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    fn refused_later(&self) -> Option<String> {
        let refused = self.mem.pool().locks_refused.get();
        (refused > 0).then(|| format!("{refused} later SuperSlabs were refused"))
    }

    /// Its reservation counts as one `mmap`.
    fn note_own(&self, replayed: &mut Replayed) {
        replayed.base_address = Some(self.mem.base().as_ptr() as u64);
        replayed.fallbacks = Some(Fallbacks::of(self.mem.pool()));
        replayed.os_calls.iter_mut().for_each(|calls| calls.mmap += 1);
    }

    fn has_kernel_chosen_addresses(&self) -> bool {
        self.mem.addresses().is_some()
    }
}

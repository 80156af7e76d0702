//! The allocators that threads share.

use std::io;

use hksim_engine::Heaps;
use hksim_native::MmapMemory;
use hksim_policy::memory::MemoryLock;
use hksim_policy::{Allocator, RunGeometry};
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};

use crate::calls::Counted;
use crate::malloc_heap::Malloc;
use crate::replayable::Replayable;

/// An allocator that real threads use at the same time. The locations of its blocks are addresses, which a thread may pass
/// to another.
pub(crate) trait SharedAllocator: Heaps + Send + Sync {
    /// Locks or unlocks the heap, as the program did with its memory.
    ///
    /// # Errors
    /// The kernel refuses.
    fn lock(&self, _lock: MemoryLock) -> io::Result<()> {
        Ok(())
    }
}

/// The SuperSlab allocator.
pub(crate) type NativeAllocator = Allocator<MmapMemory<Counted>, RunGeometry>;

impl SharedAllocator for NativeAllocator {
    fn lock(&self, lock: MemoryLock) -> io::Result<()> {
        self.lock_as(lock)
    }
}

impl SharedAllocator for Malloc {}

/// No allocator, for control runs.
pub(crate) struct NoAllocator;

impl SharedAllocator for NoAllocator {}

impl Heaps for NoAllocator {
    type Place = ();
    type Heap = ();

    fn open_heap(&self, _thread: ThreadId) -> Option<()> {
        Some(())
    }

    fn close_heap(&self, _heap: ()) {}

    fn allocate(&self, _heap: &mut (), _call: AllocCall, _bytes: u64, _align_log2: u8) -> Option<()> {
        Some(())
    }

    fn resize(&self, _heap: &mut (), _place: (), _bytes: u64, _call: ReallocCall) -> Option<()> {
        Some(())
    }

    fn free(&self, _heap: &mut (), _place: ()) {}

    fn address(&self, _place: ()) -> u64 {
        0
    }

    fn identity(&self, _place: ()) -> u64 {
        0
    }

    fn usable_bytes(&self, _place: ()) -> u64 {
        0
    }

    fn read(&self, _place: (), _offset: u64, _bytes: u64) {}

    fn write(&self, _place: (), _offset: u64, _bytes: u64) {}
}

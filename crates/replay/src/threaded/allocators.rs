//! The allocators that threads share.

use std::ptr::NonNull;

use hksim_native::MmapMemory;
use hksim_policy::memory::MemoryLock;
use hksim_policy::{Allocator, Block, PAGE_BYTES, Request, RunGeometry, ThreadHeap, World as _};
use hksim_trace::event::{AllocCall, ReallocCall};

use crate::apply::Heap;
use crate::calls::Counted;
use crate::malloc_heap::MallocHeap;

/// An allocator with a heap for each thread.
pub(crate) trait SharedAllocator: Send + Sync {
    /// The location of a block.
    type Place: Copy + Send;
    /// The heap of one thread.
    type Heap<'a>: Heap<Place = Self::Place>
    where
        Self: 'a;

    /// Opens a heap for the calling thread; `None` if there are too many.
    fn open_heap(&self) -> Option<Self::Heap<'_>>;

    /// Closes a thread's heap.
    fn close_heap(&self, heap: Self::Heap<'_>);

    /// Locks or unlocks the heap, as the program did with its memory; false if the kernel refuses.
    fn lock(&self, _lock: MemoryLock) -> bool {
        true
    }

    /// Sets the clock to the time of the next event.
    fn set_now(&self, _now_ns: u64) {}
}

/// The SuperSlab allocator.
pub(crate) type NativeAllocator = Allocator<MmapMemory<Counted>, RunGeometry>;

/// A thread's heap of the SuperSlab allocator.
pub(crate) struct NativeHeap<'a> {
    allocator: &'a NativeAllocator,
    heap: ThreadHeap<MmapMemory<Counted>>,
}

/// The location of a SuperSlab allocator's block.
#[derive(Clone, Copy)]
pub(crate) struct Place(Block<NonNull<u8>>);

// SAFETY: an address; the tickets order all accesses to the memory at it.
unsafe impl Send for Place {}

impl SharedAllocator for NativeAllocator {
    type Place = Place;
    type Heap<'a> = NativeHeap<'a>;

    fn open_heap(&self) -> Option<NativeHeap<'_>> {
        Some(NativeHeap { allocator: self, heap: self.open_heap()? })
    }

    fn close_heap(&self, heap: NativeHeap<'_>) {
        self.close_heap(heap.heap);
    }

    fn lock(&self, lock: MemoryLock) -> bool {
        self.lock_memory(lock).is_ok()
    }

    #[inline]
    fn set_now(&self, now_ns: u64) {
        self.mem.set_now(now_ns);
    }
}

impl Heap for NativeHeap<'_> {
    type Place = Place;

    #[inline]
    fn allocate(&mut self, call: AllocCall, bytes: u64, align_log2: u8) -> Option<Place> {
        let bytes = match call {
            AllocCall::Pvalloc => bytes.checked_next_multiple_of(PAGE_BYTES)?,
            _ => bytes,
        };
        let request = Request { bytes, align: 1 << align_log2, zeroed: call == AllocCall::Calloc };
        self.allocator.allocate(&mut self.heap, request).map(Place)
    }

    fn resize(&mut self, place: Place, bytes: u64, _call: ReallocCall) -> Option<Place> {
        self.allocator.resize(&mut self.heap, place.0, bytes).map(Place)
    }

    #[inline]
    fn free(&mut self, place: Place) {
        self.allocator.free(&mut self.heap, place.0);
    }

    fn free_by_resize(&mut self, place: Place, _call: ReallocCall) {
        self.free(place);
    }

    fn address(&self, place: Place) -> u64 {
        u64::from(place.0.offset)
    }

    fn usable_bytes(&self, place: Place) -> u64 {
        self.allocator.usable_bytes(place.0)
    }

    fn read(&self, place: Place, offset: u64, bytes: u64) {
        self.allocator.mem.app_read(place.0, offset, bytes);
    }

    #[inline]
    fn write(&self, place: Place, offset: u64, bytes: u64) {
        self.allocator.mem.app_write(place.0, offset, bytes);
    }
}

/// The process's `malloc`.
pub(crate) struct Malloc;

/// A thread's access to the process's `malloc`.
pub(crate) struct MallocThread(MallocHeap);

/// The address of a `malloc` block.
#[derive(Clone, Copy)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: an address, as in `Place`.
unsafe impl Send for Address {}

impl SharedAllocator for Malloc {
    type Place = Address;
    type Heap<'a> = MallocThread;

    fn open_heap(&self) -> Option<MallocThread> {
        Some(MallocThread(MallocHeap))
    }

    fn close_heap(&self, _heap: MallocThread) {}
}

impl Heap for MallocThread {
    type Place = Address;

    #[inline]
    fn allocate(&mut self, call: AllocCall, bytes: u64, align_log2: u8) -> Option<Address> {
        self.0.allocate(call, bytes, align_log2).map(Address)
    }

    fn resize(&mut self, place: Address, bytes: u64, call: ReallocCall) -> Option<Address> {
        self.0.resize(place.0, bytes, call).map(Address)
    }

    #[inline]
    fn free(&mut self, place: Address) {
        self.0.free(place.0);
    }

    fn free_by_resize(&mut self, place: Address, call: ReallocCall) {
        self.0.free_by_resize(place.0, call);
    }

    fn address(&self, place: Address) -> u64 {
        self.0.address(place.0)
    }

    fn usable_bytes(&self, place: Address) -> u64 {
        self.0.usable_bytes(place.0)
    }

    fn read(&self, place: Address, offset: u64, bytes: u64) {
        self.0.read(place.0, offset, bytes);
    }

    #[inline]
    fn write(&self, place: Address, offset: u64, bytes: u64) {
        self.0.write(place.0, offset, bytes);
    }
}

/// No allocator, for control runs.
pub(crate) struct NoAllocator;

impl SharedAllocator for NoAllocator {
    type Place = ();
    type Heap<'a> = NoAllocator;

    fn open_heap(&self) -> Option<NoAllocator> {
        Some(NoAllocator)
    }

    fn close_heap(&self, _heap: NoAllocator) {}
}

impl Heap for NoAllocator {
    type Place = ();

    fn allocate(&mut self, _call: AllocCall, _bytes: u64, _align_log2: u8) -> Option<()> {
        Some(())
    }

    fn resize(&mut self, _place: (), _bytes: u64, _call: ReallocCall) -> Option<()> {
        Some(())
    }

    fn free(&mut self, _place: ()) {}

    fn free_by_resize(&mut self, _place: (), _call: ReallocCall) {}

    fn address(&self, _place: ()) -> u64 {
        0
    }

    fn usable_bytes(&self, _place: ()) -> u64 {
        0
    }

    fn read(&self, _place: (), _offset: u64, _bytes: u64) {}

    fn write(&self, _place: (), _offset: u64, _bytes: u64) {}
}

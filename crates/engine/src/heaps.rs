//! An allocator as the executor of a trace uses it: requests of threads, and the program's accesses to its blocks.

use hksim_policy::classes::TABLE_BYTES;
use hksim_policy::{Allocator, Block, FastFree, Geometry, PAGE_BYTES, Path, Request, ThreadHeap, World};
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};

use crate::initial_touch::BlockAccess;

/// An allocator with a heap for each thread. [`Driver`](crate::Driver) executes a trace on it, and so do the real
/// threads of a replay.
///
/// To write an allocator of your own, implement [`Design`](crate::Design) instead: [`OnSpace`](crate::OnSpace) is the
/// implementation of this trait for every design.
pub trait Heaps {
    /// The location of a block.
    type Place: Copy;
    /// The heap of one thread.
    type Heap;

    /// Opens the heap of a thread; `None` if there are too many.
    fn open_heap(&self, thread: ThreadId) -> Option<Self::Heap>;

    /// Closes the heap of a thread that ends.
    fn close_heap(&self, heap: Self::Heap);

    /// Sets the clock to the time of the next event, in nanoseconds.
    fn set_now(&self, _now_ns: u64) {}

    /// Allocates `bytes` bytes, aligned to 2^`align_log2`. `None` if the request fails.
    fn allocate(&self, heap: &mut Self::Heap, call: AllocCall, bytes: u64, align_log2: u8) -> Option<Self::Place>;

    /// Changes the size of a block. `None` if the request fails; the block is then unchanged.
    fn resize(&self, heap: &mut Self::Heap, place: Self::Place, bytes: u64, call: ReallocCall) -> Option<Self::Place>;

    /// Frees a block.
    fn free(&self, heap: &mut Self::Heap, place: Self::Place);

    /// A realloc to 0 bytes, which frees the block.
    fn free_by_resize(&self, heap: &mut Self::Heap, place: Self::Place, _call: ReallocCall) {
        self.free(heap, place);
    }

    /// What `malloc_usable_size` returns, in bytes.
    fn usable_bytes(&self, place: Self::Place) -> u64;

    /// The block's address, or a number congruent to it modulo the page size.
    fn address(&self, place: Self::Place) -> u64;

    /// A number that is equal in all runs of this allocator that place the block equally. The digest of placements is
    /// computed from it.
    fn identity(&self, place: Self::Place) -> u64;

    /// The program reads bytes of a block.
    fn read(&self, place: Self::Place, offset: u64, bytes: u64);

    /// The program writes bytes of a block.
    fn write(&self, place: Self::Place, offset: u64, bytes: u64);
}

/// The SuperSlab allocator on any memory.
impl<W: World, G: Geometry> Heaps for Allocator<W, G> {
    type Place = Block<W::SuperSlab>;
    type Heap = ThreadHeap<W>;

    #[inline(always)]
    fn open_heap(&self, _thread: ThreadId) -> Option<ThreadHeap<W>> {
        Allocator::open_heap(self)
    }

    #[inline(always)]
    fn close_heap(&self, heap: ThreadHeap<W>) {
        Allocator::close_heap(self, heap);
    }

    #[inline(always)]
    fn set_now(&self, now_ns: u64) {
        self.mem.set_now(now_ns);
    }

    #[inline(always)]
    fn allocate(
        &self,
        heap: &mut ThreadHeap<W>,
        call: AllocCall,
        bytes: u64,
        align_log2: u8,
    ) -> Option<Block<W::SuperSlab>> {
        note_call(self, heap, call, bytes);
        Allocator::allocate(self, heap, request(call, bytes, align_log2)?)
    }

    #[inline(always)]
    fn resize(
        &self,
        heap: &mut ThreadHeap<W>,
        place: Block<W::SuperSlab>,
        bytes: u64,
        _call: ReallocCall,
    ) -> Option<Block<W::SuperSlab>> {
        self.mem.path(Path::Realloc, 1);
        Allocator::resize(self, heap, place, bytes)
    }

    #[inline(always)]
    fn free(&self, heap: &mut ThreadHeap<W>, place: Block<W::SuperSlab>) {
        let outcome = self.free_fast(heap, place);
        self.mem.path(Path::FreeUnfinished, u64::from(outcome != FastFree::Done));
        self.finish_free(heap, place, outcome);
    }

    fn free_by_resize(&self, heap: &mut ThreadHeap<W>, place: Block<W::SuperSlab>, _call: ReallocCall) {
        self.mem.path(Path::FreeByRealloc, 1);
        Heaps::free(self, heap, place);
    }

    #[inline(always)]
    fn usable_bytes(&self, place: Block<W::SuperSlab>) -> u64 {
        self.mem.path(Path::UsableSize, 1);
        Allocator::usable_bytes(self, place)
    }

    #[inline(always)]
    fn address(&self, place: Block<W::SuperSlab>) -> u64 {
        u64::from(place.offset)
    }

    #[inline(always)]
    fn identity(&self, place: Block<W::SuperSlab>) -> u64 {
        identity(&self.mem, place)
    }

    #[inline(always)]
    fn read(&self, place: Block<W::SuperSlab>, offset: u64, bytes: u64) {
        self.mem.app_read(place, offset, bytes);
    }

    #[inline(always)]
    fn write(&self, place: Block<W::SuperSlab>, offset: u64, bytes: u64) {
        self.mem.app_write(place, offset, bytes);
    }
}

/// [`Heaps::identity`] of a block of the SuperSlab allocator.
#[inline(always)]
pub(crate) fn identity<W: World>(mem: &W, block: Block<W::SuperSlab>) -> u64 {
    u64::from(mem.ordinal(block.superslab)) << 32 | u64::from(block.offset)
}

/// Counts a call of the program, if that is wanted, and whether the native fast path serves it.
#[inline(always)]
fn note_call<W: World, G: Geometry>(allocator: &Allocator<W, G>, heap: &ThreadHeap<W>, call: AllocCall, bytes: u64) {
    if !W::COUNTS_PATHS {
        return;
    }
    let path = path_of(call);
    allocator.mem.path(path, 1);
    // `realloc` without a block calls `malloc`.
    if matches!(path, Path::Malloc | Path::AllocateByRealloc) && heap.ready(&allocator.geometry, bytes).is_none() {
        let is_above = bytes > u64::from(TABLE_BYTES);
        allocator.mem.path(if is_above { Path::MallocAboveTable } else { Path::MallocUnready }, 1);
    }
}

/// The path that a call of the program begins.
#[inline(always)]
fn path_of(call: AllocCall) -> Path {
    match call {
        AllocCall::Malloc => Path::Malloc,
        AllocCall::Calloc => Path::Calloc,
        AllocCall::Realloc | AllocCall::Reallocarray => Path::AllocateByRealloc,
        AllocCall::PosixMemalign
        | AllocCall::AlignedAlloc
        | AllocCall::Memalign
        | AllocCall::Valloc
        | AllocCall::Pvalloc => Path::Memalign,
    }
}

/// The request that a call makes; `None` if its size overflows.
#[inline(always)]
pub(crate) fn request(call: AllocCall, bytes: u64, align_log2: u8) -> Option<Request> {
    let bytes = match call {
        AllocCall::Pvalloc => bytes.checked_next_multiple_of(PAGE_BYTES)?,
        _ => bytes,
    };
    let align = 1 << u32::from(align_log2).min(63);
    Some(Request { bytes, align, zeroed: call == AllocCall::Calloc })
}

/// A block, and the allocator that it belongs to.
pub(crate) struct PlacedBlock<'a, A: Heaps> {
    pub(crate) allocator: &'a A,
    pub(crate) place: A::Place,
}

impl<A: Heaps> Copy for PlacedBlock<'_, A> {}

impl<A: Heaps> Clone for PlacedBlock<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Heaps> BlockAccess for PlacedBlock<'_, A> {
    #[inline(always)]
    fn page_offset(&self) -> u64 {
        self.allocator.address(self.place)
    }

    #[inline(always)]
    fn read(&self, offset: u64, bytes: u64) {
        self.allocator.read(self.place, offset, bytes);
    }

    #[inline(always)]
    fn write(&self, offset: u64, bytes: u64) {
        self.allocator.write(self.place, offset, bytes);
    }
}

//! The allocator of the process, with a heap per thread. It serves `GlobalAlloc` and the C interface.
//!
//! There are two such allocators, and a process uses one of them. One has constant geometry. The other has geometry
//! from the environment ([`POLICY_VARIABLE`](crate::config::POLICY_VARIABLE)). Threads of the constant allocator never
//! check which one is in use: their heap pointer implies it. Nothing here allocates: the allocators are statics, and
//! thread heaps are in the reservation.

mod fork;
mod heap_info;
pub(crate) mod invalid_free;
mod locking;
mod memory_policy;
mod process_allocator;
mod start;
mod statistics;
mod stderr;
pub(crate) mod thread_state;

use std::ptr::{self, NonNull};

use hksim_policy::{Allocator, Block, FastFree, Geometry, InvalidFree, Memory, Request, ThreadHeap};

use crate::call_counts::CountedSyscalls;
use crate::memory::MmapMemory;
pub use heap_info::{HeapInfo, heap_info, trim};
pub use locking::lock_all;
pub use start::has_constant_geometry;
pub use statistics::{Form, STATISTICS_VARIABLE, VERSION_VARIABLE, write_statistics};

use invalid_free::foreign;
use process_allocator::{CONFIGURED, CONSTANT, Constant};
use start::{AllocatorKind, start, started};

/// Creates the allocator, if it does not exist yet. Otherwise the first call does so, which needs more stack than later
/// calls.
pub fn prepare() {
    start();
}

type ProcessMemory = MmapMemory<CountedSyscalls>;
type Heap = ThreadHeap<ProcessMemory>;

/// An operation on the allocator and the calling thread's heap, generic over the geometry.
trait HeapOperation {
    /// The type of the result.
    type Output;
    /// The result if there is no memory for an allocator or a heap.
    const WITHOUT_HEAP: Self::Output;
    /// Performs the operation.
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) -> Self::Output;
}

/// Performs an operation with the calling thread's heap.
#[inline(always)]
fn with_heap<W: HeapOperation>(operation: W) -> W::Output {
    match CONSTANT.heap() {
        // SAFETY: only this thread uses the heap, and the policy never calls back into this module.
        Some(mut heap) => operation.run(CONSTANT.allocator(), unsafe { heap.as_mut() }),
        None => with_another_heap(operation).unwrap_or(W::WITHOUT_HEAP),
    }
}

/// As [`with_heap`], for a thread without a heap in the constant allocator. `None` if there is no memory for a heap.
#[cold]
#[inline(never)]
fn with_another_heap<W: HeapOperation>(operation: W) -> Option<W::Output> {
    if let Some(mut heap) = CONFIGURED.heap() {
        // SAFETY: as above.
        return Some(operation.run(CONFIGURED.allocator(), unsafe { heap.as_mut() }));
    }
    match start()? {
        AllocatorKind::Constant => CONSTANT.with_new_heap(|heap| operation.run(CONSTANT.allocator(), heap)),
        AllocatorKind::Configured => CONFIGURED.with_new_heap(|heap| operation.run(CONFIGURED.allocator(), heap)),
    }
}

/// A plain request. Its alignment and zeroing are constants, so that the fast path is compiled for them.
struct AllocatePlain(u64);

impl HeapOperation for AllocatePlain {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) -> *mut u8 {
        address_or_null(allocator, allocator.allocate(heap, Request::plain(self.0)))
    }
}

struct Allocate(Request);

impl HeapOperation for Allocate {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) -> *mut u8 {
        address_or_null(allocator, allocator.allocate(heap, self.0))
    }
}

struct Free(NonNull<u8>);

impl HeapOperation for Free {
    type Output = ();
    const WITHOUT_HEAP: () = ();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) {
        if let Some(block) = block_of(allocator, self.0) {
            // With run-time geometry, this is the fast path.
            allocator.free(heap, block);
        }
    }
}

/// Completes a free that started on the fast path.
struct Finish(NonNull<u8>, FastFree);

impl HeapOperation for Finish {
    type Output = ();
    const WITHOUT_HEAP: () = ();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) {
        let Some(block) = block_of(allocator, self.0) else { return };
        match self.1 {
            FastFree::Done => {}
            FastFree::Emptied => allocator.finish_emptied(heap, block),
            FastFree::Suspect => allocator.free_suspect(heap, block),
            FastFree::NotFast => allocator.free_slow(heap, block),
        }
    }
}

struct Resize(NonNull<u8>, u64);

impl HeapOperation for Resize {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<ProcessMemory, G>, heap: &mut Heap) -> *mut u8 {
        let look = |block| allocator.check_resized(heap, block);
        let Some(block) = checked_block_of(allocator, self.0, look) else { return ptr::null_mut() };
        address_or_null(allocator, allocator.resize(heap, block, self.1))
    }
}

fn usable_bytes_at<G: Geometry>(allocator: &Allocator<ProcessMemory, G>, address: NonNull<u8>) -> u64 {
    let block = checked_block_of(allocator, address, |block| allocator.check_pointer(block));
    block.map_or(0, |block| allocator.usable_bytes(block))
}

#[inline(always)]
fn address_or_null<G: Geometry>(allocator: &Allocator<ProcessMemory, G>, block: Option<Block<NonNull<u8>>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), |block| allocator.mem.address(block).as_ptr())
}

/// The block at an address of the arena. Other addresses are reported as invalid.
fn block_of<G: Geometry>(allocator: &Allocator<ProcessMemory, G>, address: NonNull<u8>) -> Option<Block<NonNull<u8>>> {
    if allocator.mem.holds(address) {
        return Some(allocator.mem.block_at(address));
    }
    foreign(address);
    None
}

/// As [`block_of`], for operations in which the policy itself does not check the pointer: `look` checks it.
#[inline(always)]
fn checked_block_of<G: Geometry>(
    allocator: &Allocator<ProcessMemory, G>,
    address: NonNull<u8>,
    look: impl FnOnce(Block<NonNull<u8>>) -> Option<InvalidFree>,
) -> Option<Block<NonNull<u8>>> {
    let block = block_of(allocator, address)?;
    match look(block) {
        None => Some(block),
        Some(what) => {
            allocator.mem.invalid_free(block, what);
            None
        }
    }
}

/// As [`allocate`] with [`Request::plain`], but faster. Sets `errno` if there is no memory.
#[inline(always)]
pub fn allocate_plain(bytes: u64) -> *mut u8 {
    let thread_state = CONSTANT.thread_state();
    // SAFETY: this thread's state, or `EMPTY`; there is no mutable reference to either now.
    let ready = unsafe { thread_state.as_ref() }.heap.ready(&Constant::default(), bytes);
    let Some(ready) = ready else { return allocate_slow(bytes) };
    // SAFETY: a heap with a ready block is not the heap of `EMPTY`, so only this thread uses it, and the allocator
    // exists.
    let heap = unsafe { &mut (*thread_state.as_ptr()).heap };
    let allocator = CONSTANT.allocator();
    allocator.mem.address(allocator.take(heap, ready)).as_ptr()
}

#[cold]
#[inline(never)]
extern "C" fn allocate_slow(bytes: u64) -> *mut u8 {
    let block = with_heap(AllocatePlain(bytes));
    if block.is_null() {
        // SAFETY: the location is this thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
    }
    block
}

/// Allocates; null if there is no memory.
#[inline(always)]
pub fn allocate(request: Request) -> *mut u8 {
    with_heap(Allocate(request))
}

/// Frees a block from [`allocate`] or [`resize`]. Does nothing if `address` is null.
///
/// # Safety
/// `address` is null, or live and not used afterwards. (An address outside the arena is detected and aborts the
/// process.)
#[inline(always)]
pub unsafe fn free(address: *mut u8) {
    let thread_state = CONSTANT.thread_state();
    // SAFETY: this thread's state, or `EMPTY`, whose arena contains no address.
    if let Some(block) = unsafe { thread_state.as_ref() }.block_at(&Constant::default(), address) {
        // SAFETY: the state is not `EMPTY`, so only this thread uses it, and the allocator exists.
        let heap = unsafe { &mut (*thread_state.as_ptr()).heap };
        match CONSTANT.allocator().free_fast(heap, block) {
            FastFree::Done => return,
            FastFree::Emptied => return finish_emptied_slow(address),
            FastFree::Suspect => return free_suspect_slow(address),
            FastFree::NotFast => {}
        }
    }
    free_slow(address);
}

// The slow paths are `extern "C"` functions because these never unwind. A fast path can then end with a jump to a slow
// path, and needs no stack frame.

#[cold]
#[inline(never)]
extern "C" fn finish_emptied_slow(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Finish(address, FastFree::Emptied));
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_suspect_slow(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Finish(address, FastFree::Suspect));
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_slow(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Free(address));
    }
}

/// Resizes a block. Null if there is no memory; the block is then unchanged.
///
/// # Safety
/// As for [`free`], unless null is returned.
pub unsafe fn resize(address: NonNull<u8>, bytes: u64) -> *mut u8 {
    with_heap(Resize(address, bytes))
}

/// Usable bytes of a live block. Opens no heap for the calling thread.
///
/// # Safety
/// `address` is live.
pub unsafe fn usable_bytes(address: NonNull<u8>) -> u64 {
    match started() {
        Some(AllocatorKind::Constant) => usable_bytes_at(CONSTANT.allocator(), address),
        Some(AllocatorKind::Configured) => usable_bytes_at(CONFIGURED.allocator(), address),
        None => {
            foreign(address);
            0
        }
    }
}

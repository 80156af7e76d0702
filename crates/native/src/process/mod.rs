//! One allocator for the whole process, with a heap per thread: what serves `GlobalAlloc` and the C interface.
//!
//! There are two of it, of which a process uses one: with constant geometry, and with one from the environment
//! ([`POLICY_VARIABLE`](crate::setup::POLICY_VARIABLE)). Threads of the first never ask which: their heap's pointer tells.
//! Nothing here allocates: the allocator is made in place in a static, thread heaps live in the reservation.

pub(crate) mod desk;
mod fork;
mod heap_info;
mod locking;
mod memory_policy;
pub(crate) mod misuse;
mod say;
mod served;
mod start;
mod statistics;

use std::ptr::{self, NonNull};

use hksim_policy::{Allocator, Block, Geometry, Memory, Misuse, Quickly, Request, ThreadHeap};

use crate::memory::MmapMemory;
use crate::tally::Counted;
pub use heap_info::{HeapInfo, heap_info, trim};
pub use locking::lock_all;
pub use statistics::{Form, STATISTICS_VARIABLE, tell_statistics};

use misuse::foreign;
use served::{CHOSEN, CONSTANT, Constant};
use start::{Kind, start, started};

type World = MmapMemory<Counted>;
type Heap = ThreadHeap<World>;

/// Something to do with the allocator and the calling thread's heap, whatever the geometry.
trait Work {
    /// What comes of it.
    type Output;
    /// What comes of it where there is no memory for an allocator or a heap.
    const WITHOUT_HEAP: Self::Output;
    /// Does it.
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) -> Self::Output;
}

/// Does some work with the calling thread's heap.
#[inline(always)]
fn with_heap<W: Work>(work: W) -> W::Output {
    match CONSTANT.heap() {
        // SAFETY: the heap is this thread's alone, and no call of the policy comes back here.
        Some(mut heap) => work.run(CONSTANT.allocator(), unsafe { heap.as_mut() }),
        None => with_another_heap(work).unwrap_or(W::WITHOUT_HEAP),
    }
}

/// The same where the thread has no heap of the constant allocator. `None` if there is no memory for one.
#[cold]
#[inline(never)]
fn with_another_heap<W: Work>(work: W) -> Option<W::Output> {
    if let Some(mut heap) = CHOSEN.heap() {
        // SAFETY: as above.
        return Some(work.run(CHOSEN.allocator(), unsafe { heap.as_mut() }));
    }
    match start()? {
        Kind::Constant => CONSTANT.with_new_heap(|heap| work.run(CONSTANT.allocator(), heap)),
        Kind::Chosen => CHOSEN.with_new_heap(|heap| work.run(CHOSEN.allocator(), heap)),
    }
}

/// A plain request: what it is made of is known when the fast path is compiled.
struct AllocatePlain(u64);

impl Work for AllocatePlain {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) -> *mut u8 {
        address_or_null(allocator, allocator.allocate(heap, Request::plain(self.0)))
    }
}

struct Allocate(Request);

impl Work for Allocate {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) -> *mut u8 {
        address_or_null(allocator, allocator.allocate(heap, self.0))
    }
}

struct Free(NonNull<u8>);

impl Work for Free {
    type Output = ();
    const WITHOUT_HEAP: () = ();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) {
        if let Some(block) = block_of(allocator, self.0) {
            // With run-time geometry this is where the fast path is.
            allocator.free(heap, block);
        }
    }
}

/// The rest of a free that began on the fast path.
struct Finish(NonNull<u8>, Quickly);

impl Work for Finish {
    type Output = ();
    const WITHOUT_HEAP: () = ();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) {
        let Some(block) = block_of(allocator, self.0) else { return };
        match self.1 {
            Quickly::Done => {}
            Quickly::Emptied => allocator.settle_after(heap, block),
            Quickly::Suspect => allocator.free_suspect(heap, block),
            Quickly::Not => allocator.free_slowly(heap, block),
        }
    }
}

struct Resize(NonNull<u8>, u64);

impl Work for Resize {
    type Output = *mut u8;
    const WITHOUT_HEAP: *mut u8 = ptr::null_mut();

    #[inline(always)]
    fn run<G: Geometry>(self, allocator: &Allocator<World, G>, heap: &mut Heap) -> *mut u8 {
        let look = |block| allocator.misuse_of_resized(heap, block);
        let Some(block) = checked_block_of(allocator, self.0, look) else { return ptr::null_mut() };
        address_or_null(allocator, allocator.resize(heap, block, self.1))
    }
}

fn usable_bytes_at<G: Geometry>(allocator: &Allocator<World, G>, address: NonNull<u8>) -> u64 {
    let block = checked_block_of(allocator, address, |block| allocator.misuse_of(block));
    block.map_or(0, |block| allocator.usable_bytes(block))
}

#[inline(always)]
fn address_or_null<G: Geometry>(allocator: &Allocator<World, G>, block: Option<Block<NonNull<u8>>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), |block| allocator.mem.address(block).as_ptr())
}

/// The block at an address of the arena; others end the process, or are counted.
fn block_of<G: Geometry>(allocator: &Allocator<World, G>, address: NonNull<u8>) -> Option<Block<NonNull<u8>>> {
    if allocator.mem.holds(address) {
        return Some(allocator.mem.block_at(address));
    }
    foreign(address);
    None
}

/// The same where the policy does not look itself whether it is a block: `look` does.
#[inline(always)]
fn checked_block_of<G: Geometry>(
    allocator: &Allocator<World, G>,
    address: NonNull<u8>,
    look: impl FnOnce(Block<NonNull<u8>>) -> Option<Misuse>,
) -> Option<Block<NonNull<u8>>> {
    let block = block_of(allocator, address)?;
    match look(block) {
        None => Some(block),
        Some(what) => {
            allocator.mem.misuse(block, what);
            None
        }
    }
}

/// Allocates as [`allocate`] does with [`Request::plain`], faster; sets `errno` where there is no memory.
#[inline(always)]
pub fn allocate_plain(bytes: u64) -> *mut u8 {
    let desk = CONSTANT.desk();
    // SAFETY: this thread's desk, or nobody's; neither is being changed.
    let ready = unsafe { desk.as_ref() }.heap.ready(&Constant::default(), bytes);
    let Some(ready) = ready else { return allocate_slowly(bytes) };
    // SAFETY: a heap that has a block is not nobody's, so it is this thread's alone, and there is an allocator.
    let heap = unsafe { &mut (*desk.as_ptr()).heap };
    let allocator = CONSTANT.allocator();
    allocator.mem.address(allocator.take(heap, ready)).as_ptr()
}

#[cold]
#[inline(never)]
extern "C" fn allocate_slowly(bytes: u64) -> *mut u8 {
    let block = with_heap(AllocatePlain(bytes));
    if block.is_null() {
        // SAFETY: the location is this thread's errno.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
    }
    block
}

/// Allocates; null where there is no memory.
#[inline(always)]
pub fn allocate(request: Request) -> *mut u8 {
    with_heap(Allocate(request))
}

/// Frees what [`allocate`] or [`resize`] gave; nothing, where that was null.
///
/// # Safety
/// `address` is null, or live and not used afterwards. (An address outside the arena is recognised and ends the process.)
#[inline(always)]
pub unsafe fn free(address: *mut u8) {
    let desk = CONSTANT.desk();
    // SAFETY: this thread's desk, or nobody's, which no address lies in.
    if let Some(block) = unsafe { desk.as_ref() }.block_at(&Constant::default(), address) {
        // SAFETY: not nobody's desk, so it is this thread's alone, and there is an allocator.
        let heap = unsafe { &mut (*desk.as_ptr()).heap };
        match CONSTANT.allocator().free_quickly(heap, block) {
            Quickly::Done => return,
            Quickly::Emptied => return settle_slowly(address),
            Quickly::Suspect => return look_closely(address),
            Quickly::Not => {}
        }
    }
    free_slowly(address);
}

// The slow ways are `extern "C"` since such a function never unwinds, so that a fast path ends with a jump to it and
// needs no stack.

#[cold]
#[inline(never)]
extern "C" fn settle_slowly(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Finish(address, Quickly::Emptied));
    }
}

#[cold]
#[inline(never)]
extern "C" fn look_closely(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Finish(address, Quickly::Suspect));
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_slowly(address: *mut u8) {
    if let Some(address) = NonNull::new(address) {
        with_heap(Free(address));
    }
}

/// Resizes; null where there is no memory, and the block is unchanged then.
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
        Some(Kind::Constant) => usable_bytes_at(CONSTANT.allocator(), address),
        Some(Kind::Chosen) => usable_bytes_at(CHOSEN.allocator(), address),
        None => {
            foreign(address);
            0
        }
    }
}

//! The ordered driver.

mod common;

use hksim_policy::{Allocator, Block, Geometry, PAGE_BYTES, Request, ThreadHeap, World};
use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};

use crate::objects::Objects;
use crate::tables::Tables;
use crate::{Live, TouchRule};

/// Why a trace cannot be executed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveError {
    /// More threads are alive at the same time than there are heap slots.
    TooManyThreads,
}

impl std::fmt::Display for DriveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {} threads are alive at the same time", hksim_policy::layout::HEAPS_MAX)
    }
}

impl std::error::Error for DriveError {}

/// Executes a trace on an allocator. All tables are allocated at the start, so that a replay allocates nothing while it
/// runs.
///
/// [`Driver::step`] performs one event, and [`Driver::step_common`] the common events of a batch, in the same way.
pub struct Driver<W: World, G: Geometry> {
    allocator: Allocator<W, G>,
    heaps: Vec<Option<ThreadHeap<W>>>,
    objects: Objects<W::SuperSlab>,
    failed: u64,
}

impl<W: World, G: Geometry> Driver<W, G> {
    /// A driver for a trace with `threads` threads and at most `objects_peak` live objects.
    pub fn new(allocator: Allocator<W, G>, threads: u32, objects_peak: u32, touch: TouchRule) -> Driver<W, G> {
        Driver::with_tables(allocator, Tables::new(threads, objects_peak), touch)
    }

    /// A driver with existing tables. A replay makes them resident before it creates its allocator.
    pub fn with_tables(allocator: Allocator<W, G>, tables: Tables<W>, touch: TouchRule) -> Driver<W, G> {
        let Tables { heaps, objects } = tables;
        Driver { allocator, heaps, objects: Objects::new(objects, touch), failed: 0 }
    }

    /// Makes [`Driver::live`] count every touched byte. Bytes touched out of order cost additional memory.
    pub fn counting_scattered(self) -> Driver<W, G> {
        Driver { objects: Objects { counts_scattered: true, ..self.objects }, ..self }
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator<W, G> {
        &self.allocator
    }

    /// Live bytes: current and peak.
    pub fn live(&self) -> Live {
        self.objects.live.get()
    }

    /// A digest of all placements so far. Two runs have equal digests if and (almost surely) only if all placements are
    /// equal.
    pub fn placement(&self) -> u64 {
        self.objects.placement.0
    }

    /// Requests that the allocator could not serve.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The block and the requested bytes of every live object.
    pub fn live_objects(&self) -> impl Iterator<Item = (Block<W::SuperSlab>, u64)> + '_ {
        self.objects.table.iter().filter_map(|object| object.block.map(|block| (block, object.bytes)))
    }

    /// The block of an object, if the object is live and its allocation succeeded.
    pub fn block_of(&self, object: ObjectId) -> Option<Block<W::SuperSlab>> {
        self.objects.table.get(object.0 as usize)?.block
    }

    /// The open heaps, for consistency checks.
    pub fn heaps(&self) -> impl Iterator<Item = &ThreadHeap<W>> + '_ {
        self.heaps.iter().flatten()
    }

    /// Performs one event.
    ///
    /// # Errors
    /// No heap can be opened for a new thread.
    #[inline(always)]
    pub fn step(&mut self, event: &Event) -> Result<(), DriveError> {
        self.allocator.mem.set_now(event.time_ns);
        match event.op {
            Op::Alloc { object, size, align_log2: 0, call: AllocCall::Malloc, initial_touch } => {
                self.allocate(event.thread, object, Request::plain(size), size, initial_touch)
            }
            Op::Alloc { object, size, align_log2, call, initial_touch } => {
                self.allocate_as(event.thread, object, request(size, align_log2, call), size, initial_touch)
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => self.free(event.thread, object),
            Op::Realloc { object, size, initial_touch, .. } => self.resize(event.thread, object, size, initial_touch),
            Op::ReallocUnknown { object, size, .. } => {
                self.allocate_as(event.thread, object, Request::plain(size), size, InitialTouch::None)
            }
            Op::Touch { object, offset, bytes, access } => {
                self.access(object, offset, u64::from(bytes), access);
                Ok(())
            }
            Op::UsableSize { object } => {
                if let Some(block) = self.block_of(object) {
                    std::hint::black_box(self.allocator.usable_bytes(block));
                }
                Ok(())
            }
            Op::ThreadExit => {
                if let Some(heap) = self.heaps[event.thread.0 as usize].take() {
                    self.allocator.close_heap(heap);
                }
                Ok(())
            }
            // A heap is opened by a thread's first allocation or free: see `heap_of`.
            Op::ThreadStart
            | Op::FreeNull
            | Op::FreeUnknown
            | Op::AllocFailed { .. }
            | Op::ReallocFailed { .. }
            | Op::Fork { .. }
            | Op::ForkEnd { .. }
            | Op::Exec
            | Op::Mark { .. }
            // Not an allocator call. The caller of the driver handles it.
            | Op::MemoryPolicy { .. } => Ok(()),
        }
    }

    #[inline(always)]
    fn allocate(
        &mut self,
        thread: ThreadId,
        object: ObjectId,
        request: Request,
        bytes: u64,
        initial_touch: InitialTouch,
    ) -> Result<(), DriveError> {
        let heap = heap_of(&self.allocator, &mut self.heaps, thread)?;
        match self.allocator.allocate(heap, request) {
            Some(block) => {
                let initial_touch = self.objects.touch.initial_touch(initial_touch);
                self.objects.place(&self.allocator.mem, object, block, bytes, initial_touch);
            }
            None => self.allocation_failed(object),
        }
        Ok(())
    }

    #[cold]
    fn allocation_failed(&mut self, object: ObjectId) {
        self.failed += 1;
        self.objects.without_block(object);
    }

    /// `allocate` for every call except a plain malloc. Not inlined, because most events are plain mallocs.
    #[inline(never)]
    fn allocate_as(
        &mut self,
        thread: ThreadId,
        object: ObjectId,
        request: Request,
        bytes: u64,
        initial_touch: InitialTouch,
    ) -> Result<(), DriveError> {
        self.allocate(thread, object, request, bytes, initial_touch)
    }

    #[inline(always)]
    fn free(&mut self, thread: ThreadId, object: ObjectId) -> Result<(), DriveError> {
        if self.block_of(object).is_some() {
            let heap = heap_of(&self.allocator, &mut self.heaps, thread)?;
            if let Some(block) = self.objects.remove(&self.allocator.mem, object) {
                self.allocator.free(heap, block);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn resize(
        &mut self,
        thread: ThreadId,
        object: ObjectId,
        bytes: u64,
        initial_touch: InitialTouch,
    ) -> Result<(), DriveError> {
        let heap = heap_of(&self.allocator, &mut self.heaps, thread)?;
        let Some(block) = self.objects.table[object.0 as usize].block else {
            return self.allocate_as(thread, object, Request::plain(bytes), bytes, initial_touch);
        };
        match self.allocator.resize(heap, block, bytes) {
            Some(new) => self.objects.resize(&self.allocator.mem, object, new, bytes, initial_touch),
            None => self.failed += 1,
        }
        Ok(())
    }

    #[inline(never)]
    fn access(&mut self, object: ObjectId, offset: u64, bytes: u64, access: Access) {
        self.objects.access(&self.allocator.mem, object, offset, bytes, access);
    }
}

/// Returns the heap of a thread. As in the native allocator, a thread's first allocation or free of a block opens its
/// heap. A thread that only starts, ends or frees null has no heap. (glibc frees null at thread exit.)
#[inline(always)]
fn heap_of<'a, W: World, G: Geometry>(
    allocator: &Allocator<W, G>,
    heaps: &'a mut [Option<ThreadHeap<W>>],
    thread: ThreadId,
) -> Result<&'a mut ThreadHeap<W>, DriveError> {
    match &mut heaps[thread.0 as usize] {
        Some(heap) => Ok(heap),
        empty => Ok(empty.insert(allocator.open_heap().ok_or(DriveError::TooManyThreads)?)),
    }
}

#[inline(always)]
fn request(size: u64, align_log2: u8, call: AllocCall) -> Request {
    let bytes = if call == AllocCall::Pvalloc { size.next_multiple_of(PAGE_BYTES) } else { size };
    let align = 1 << u32::from(align_log2).min(63);
    Request { bytes, align, zeroed: call == AllocCall::Calloc }
}

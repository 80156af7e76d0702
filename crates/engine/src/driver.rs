//! The ordered driver.

use std::ops::Range;

use hksim_policy::{Allocator, Block, Geometry, PAGE_BYTES, Request, ThreadHeap, World};
use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};

use crate::initial_touch::{BlockAccess, touch_new_bytes};
use crate::scattered::Scattered;
use crate::tables::{Object, Tables};
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
pub struct Driver<W: World, G: Geometry> {
    allocator: Allocator<W, G>,
    tables: Tables<W>,
    touch: TouchRule,
    live: Live,
    /// `None` in a replay, which must not allocate.
    scattered: Option<Scattered>,
    placement: PlacementDigest,
    failed: u64,
}

/// A block, and the memory that contains it.
struct AppBlock<'a, W: World> {
    mem: &'a W,
    block: Block<W::SuperSlab>,
}

impl<W: World> BlockAccess for AppBlock<'_, W> {
    fn page_offset(&self) -> u64 {
        u64::from(self.block.offset)
    }

    #[inline(always)]
    fn read(&self, offset: u64, bytes: u64) {
        self.mem.app_read(self.block, offset, bytes);
    }

    #[inline(always)]
    fn write(&self, offset: u64, bytes: u64) {
        self.mem.app_write(self.block, offset, bytes);
    }
}

/// A running digest of where every object was placed.
struct PlacementDigest(u64);

impl PlacementDigest {
    #[inline(always)]
    fn note(&mut self, object: ObjectId, ordinal: u32, offset: u32) {
        let place = u64::from(ordinal) << 32 | u64::from(offset);
        let mixed = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(object.0);
        self.0 = (self.0.rotate_left(5) ^ mixed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
}

impl<W: World, G: Geometry> Driver<W, G> {
    /// A driver for a trace with `threads` threads and at most `objects_peak` live objects.
    pub fn new(allocator: Allocator<W, G>, threads: u32, objects_peak: u32, touch: TouchRule) -> Driver<W, G> {
        Driver::with_tables(allocator, Tables::new(threads, objects_peak), touch)
    }

    /// A driver with existing tables. A replay makes them resident before it creates its allocator.
    pub fn with_tables(allocator: Allocator<W, G>, tables: Tables<W>, touch: TouchRule) -> Driver<W, G> {
        Driver {
            allocator,
            tables,
            touch,
            live: Live::default(),
            scattered: None,
            placement: PlacementDigest(0),
            failed: 0,
        }
    }

    /// Makes [`Driver::live`] count every touched byte. Bytes touched out of order cost additional memory.
    pub fn counting_scattered(self) -> Driver<W, G> {
        Driver { scattered: Some(Scattered::default()), ..self }
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator<W, G> {
        &self.allocator
    }

    /// Live bytes: current and peak.
    pub fn live(&self) -> Live {
        self.live
    }

    /// A digest of all placements so far. Two runs have equal digests if and (almost surely) only if all placements are
    /// equal.
    pub fn placement(&self) -> u64 {
        self.placement.0
    }

    /// Requests that the allocator could not serve.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The block and the requested bytes of every live object.
    pub fn live_objects(&self) -> impl Iterator<Item = (Block<W::SuperSlab>, u64)> + '_ {
        self.tables.objects.iter().filter_map(|object| object.block.map(|block| (block, object.bytes)))
    }

    /// The block of an object, if the object is live and its allocation succeeded.
    pub fn block_of(&self, object: ObjectId) -> Option<Block<W::SuperSlab>> {
        self.tables.objects.get(object.0 as usize)?.block
    }

    /// The open heaps, for consistency checks.
    pub fn heaps(&self) -> impl Iterator<Item = &ThreadHeap<W>> + '_ {
        self.tables.heaps.iter().flatten()
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
                self.touched(object, offset, u64::from(bytes), access);
                Ok(())
            }
            Op::UsableSize { object } => {
                if let Some(block) = self.tables.objects[object.0 as usize].block {
                    std::hint::black_box(self.allocator.usable_bytes(block));
                }
                Ok(())
            }
            Op::ThreadExit => {
                if let Some(heap) = self.tables.heaps[event.thread.0 as usize].take() {
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
        let heap = heap_of(&self.allocator, &mut self.tables.heaps, thread)?;
        let Some(block) = self.allocator.allocate(heap, request) else {
            self.failed += 1;
            self.tables.objects[object.0 as usize].block = None;
            return Ok(());
        };
        self.placement.note(object, self.allocator.mem.ordinal(block.superslab), block.offset);
        let touched_bytes = self.initial_touch(block, 0, bytes, self.touch.initial_touch(initial_touch));
        self.tables.objects[object.0 as usize] = Object { block: Some(block), bytes, touched_bytes };
        self.live.add(bytes, touched_bytes);
        Ok(())
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

    /// Touches `from..bytes` of a block. Returns the end of the touched range, or 0 if nothing was touched.
    #[inline(always)]
    fn initial_touch(&self, block: Block<W::SuperSlab>, from: u64, bytes: u64, initial_touch: InitialTouch) -> u64 {
        touch_new_bytes(&AppBlock { mem: &self.allocator.mem, block }, from..bytes, initial_touch)
    }

    #[inline(always)]
    fn free(&mut self, thread: ThreadId, object: ObjectId) -> Result<(), DriveError> {
        let Object { block, bytes, touched_bytes } = &mut self.tables.objects[object.0 as usize];
        if let Some(block) = block.take() {
            let heap = heap_of(&self.allocator, &mut self.tables.heaps, thread)?;
            if let Some(scattered) = self.scattered.as_mut().filter(|scattered| !scattered.is_empty()) {
                self.live.remove(0, scattered.forget(object));
            }
            if self.touch == TouchRule::AllAtDeath && *bytes > 0 {
                self.allocator.mem.app_write(block, 0, *bytes);
                self.live.add(0, *bytes);
                self.live.remove(0, *bytes);
            }
            self.live.remove(*bytes, *touched_bytes);
            self.allocator.free(heap, block);
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
        let heap = heap_of(&self.allocator, &mut self.tables.heaps, thread)?;
        let at = object.0 as usize;
        let Object { block: Some(block), bytes: old_bytes, touched_bytes: old_touched } = self.tables.objects[at]
        else {
            return self.allocate_as(thread, object, Request::plain(bytes), bytes, initial_touch);
        };
        let Some(new) = self.allocator.resize(heap, block, bytes) else {
            self.failed += 1;
            return Ok(());
        };
        self.placement.note(object, self.allocator.mem.ordinal(new.superslab), new.offset);
        let touched_end = self.initial_touch(new, old_bytes, bytes, self.touch.initial_touch(initial_touch));
        let touched_bytes = old_touched.min(bytes);
        if let Some(scattered) = &mut self.scattered {
            self.live.remove(0, scattered.shrink(object, old_touched, bytes));
        }
        self.live.remove(old_bytes, old_touched);
        self.live.add(bytes, touched_bytes);
        self.tables.objects[at] = Object { block: Some(new), bytes, touched_bytes };
        self.count_touch(object, old_bytes..touched_end);
        Ok(())
    }

    #[inline(never)]
    fn touched(&mut self, object: ObjectId, offset: u64, bytes: u64, access: Access) {
        if self.touch != TouchRule::Recorded {
            return;
        }
        let &Object { block, bytes: size, .. } = &self.tables.objects[object.0 as usize];
        let (Some(block), Some(end)) = (block, offset.checked_add(bytes)) else { return };
        // A trace may contain touches beyond the object's end. Such touches are truncated.
        let end = end.min(size);
        if offset >= end {
            return;
        }
        match access {
            Access::Read => self.allocator.mem.app_read(block, offset, end - offset),
            Access::Write => self.allocator.mem.app_write(block, offset, end - offset),
        }
        self.count_touch(object, offset..end);
    }

    /// Counts the bytes of `touched` that were not touched before.
    fn count_touch(&mut self, object: ObjectId, touched: Range<u64>) {
        let &mut Object { bytes: size, touched_bytes: ref mut prefix, .. } =
            &mut self.tables.objects[object.0 as usize];
        if touched.end <= *prefix {
            return;
        }
        if let Some(scattered) = &mut self.scattered {
            let new = scattered.touch(object, prefix, touched, size);
            self.live.add(0, new);
        } else if touched.start <= *prefix {
            self.live.add(0, touched.end - *prefix);
            *prefix = touched.end;
        }
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

//! The ordered driver.

mod common;

use hksim_trace::event::{Event, ObjectId, Op, ThreadId};

use crate::heaps::Heaps;
use crate::object::perform;
use crate::objects::{ObjectCounts, Objects};
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
/// [`Driver::step`] performs one event. For the SuperSlab allocator, [`Driver::step_common`] performs the common events
/// of a batch in the same way.
pub struct Driver<A: Heaps> {
    allocator: A,
    heaps: Vec<Option<A::Heap>>,
    objects: Objects<A::Place>,
    failed: u64,
}

impl<A: Heaps> Driver<A> {
    /// A driver for a trace with `threads` threads and at most `objects_peak` live objects.
    pub fn new(allocator: A, threads: u32, objects_peak: u32, touch: TouchRule) -> Driver<A> {
        Driver::with_tables(allocator, Tables::new(threads, objects_peak), touch)
    }

    /// A driver with existing tables. A replay makes them resident before it creates its allocator.
    pub fn with_tables(allocator: A, tables: Tables<A>, touch: TouchRule) -> Driver<A> {
        let Tables { heaps, objects } = tables;
        Driver { allocator, heaps, objects: Objects::new(objects, touch), failed: 0 }
    }

    /// Makes [`Driver::live`] count every touched byte. Bytes touched out of order cost additional memory.
    pub fn counting_scattered(self) -> Driver<A> {
        let counts = ObjectCounts { counts_scattered: true, ..self.objects.counts };
        Driver { objects: Objects { counts, ..self.objects }, ..self }
    }

    /// The allocator.
    pub fn allocator(&self) -> &A {
        &self.allocator
    }

    /// Live bytes: current and peak.
    pub fn live(&self) -> Live {
        self.objects.counts.live.get()
    }

    /// A digest of all placements so far. Two runs of an allocator have equal digests if and (almost surely) only if all
    /// placements are equal: see [`Heaps::identity`].
    pub fn placement(&self) -> u64 {
        self.objects.counts.placement.0
    }

    /// Requests that the allocator could not serve.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// The block and the requested bytes of every live object.
    pub fn live_objects(&self) -> impl Iterator<Item = (A::Place, u64)> + '_ {
        self.objects.table.iter().filter_map(|object| object.place.map(|place| (place, object.bytes)))
    }

    /// The block of an object, if the object is live and its allocation succeeded.
    pub fn block_of(&self, object: ObjectId) -> Option<A::Place> {
        self.objects.table.get(object.0 as usize)?.place
    }

    /// The open heaps, for consistency checks.
    pub fn heaps(&self) -> impl Iterator<Item = &A::Heap> + '_ {
        self.heaps.iter().flatten()
    }

    /// Performs one event.
    ///
    /// # Errors
    /// No heap can be opened for a new thread.
    #[inline(always)]
    pub fn step(&mut self, event: &Event) -> Result<(), DriveError> {
        let Driver { allocator, heaps, objects: Objects { table, touch, counts }, failed } = self;
        let (allocator, heaps, table) = (&*allocator, heaps.as_mut_slice(), table.as_mut_slice());
        allocator.set_now(event.time_ns);
        // Of the events without an object, only the end of a thread concerns an allocator. A change of the memory policy is
        // performed by the caller of the driver.
        if matches!(event.op, Op::ThreadExit) {
            if let Some(heap) = heaps[event.thread.0 as usize].take() {
                allocator.close_heap(heap);
            }
            return Ok(());
        }
        let served = perform(
            allocator,
            || heap_of(allocator, heaps, event.thread),
            |object| &mut table[object.0 as usize],
            &event.op,
            *touch,
            counts,
        )?;
        *failed += u64::from(served.is_err());
        Ok(())
    }
}

/// Returns the heap of a thread. As in the native allocator, a thread's first allocation or free of a block opens its
/// heap. A thread that only starts, ends or frees null has no heap. (glibc frees null at thread exit.)
#[inline(always)]
fn heap_of<'a, A: Heaps>(
    allocator: &A,
    heaps: &'a mut [Option<A::Heap>],
    thread: ThreadId,
) -> Result<&'a mut A::Heap, DriveError> {
    match &mut heaps[thread.0 as usize] {
        Some(heap) => Ok(heap),
        empty => Ok(empty.insert(allocator.open_heap(thread).ok_or(DriveError::TooManyThreads)?)),
    }
}

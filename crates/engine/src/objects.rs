//! The program's side of a trace: its live objects, its touches, and what is counted about them.

use std::ops::Range;

use hksim_policy::{Block, World};
use hksim_trace::event::{InitialTouch, ObjectId};
use hksim_trace::hkt::CommonRun;

use crate::TouchRule;
use crate::heaps::identity;
use crate::initial_touch::{BlockAccess, touch_new_bytes};
use crate::live::LiveCounter;
use crate::object::{Counts, Object};
use crate::prefetch::prefetch;
use crate::scattered::Scattered;

/// A table above this size does not fit into the caches near a core (L2: 512 KiB to 2 MiB).
const LARGE_BYTES: usize = 256 << 10;
/// How many events ahead an object's data are fetched: its entry of the table, the metadata of its block's slab, and
/// what belongs to the block. An event takes some 10 ns, and an access to main memory some 100 ns.
const ENTRY_DISTANCE: usize = 36;
const SLAB_DISTANCE: usize = 24;
const BLOCK_DISTANCE: usize = 12;

/// The objects of a trace. Indexed by object id; the ids of a trace are below its `objects_peak`.
pub(crate) struct Objects<P> {
    pub(crate) table: Vec<Object<P>>,
    pub(crate) touch: TouchRule,
    pub(crate) counts: ObjectCounts,
}

/// What is counted about the objects of a trace.
pub(crate) struct ObjectCounts {
    pub(crate) live: LiveCounter,
    /// Empty unless `counts_scattered`: a replay must not allocate.
    pub(crate) scattered: Scattered,
    pub(crate) counts_scattered: bool,
    pub(crate) placement: PlacementDigest,
}

/// A running digest of where every object was placed.
pub(crate) struct PlacementDigest(pub(crate) u64);

impl PlacementDigest {
    #[inline(always)]
    fn note(&mut self, object: ObjectId, identity: u64) {
        let mixed = identity.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(object.0);
        self.0 = (self.0.rotate_left(5) ^ mixed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
}

impl Counts for ObjectCounts {
    #[inline(always)]
    fn placed(&mut self, object: ObjectId, identity: impl FnOnce() -> u64) {
        self.placement.note(object, identity());
    }

    #[inline(always)]
    fn added(&mut self, bytes: u64, touched_bytes: u64) {
        self.live.add(bytes, touched_bytes);
    }

    #[inline(always)]
    fn all_touched(&mut self, bytes: u64) {
        self.live.add(0, bytes);
        self.live.remove(0, bytes);
    }

    #[inline(always)]
    fn removed<P>(&mut self, object: ObjectId, removed: &Object<P>) {
        if !self.scattered.is_empty() {
            self.live.remove(0, self.scattered.forget(object));
        }
        self.live.remove(removed.bytes, removed.touched_bytes);
    }

    fn resized<P>(&mut self, object: ObjectId, resized: &mut Object<P>, bytes: u64) {
        let Object { bytes: old_bytes, touched_bytes: old_touched, .. } = *resized;
        let touched_bytes = old_touched.min(bytes);
        self.live.remove(0, self.scattered.shrink(object, old_touched, bytes));
        self.live.remove(old_bytes, old_touched);
        self.live.add(bytes, touched_bytes);
        (resized.bytes, resized.touched_bytes) = (bytes, touched_bytes);
    }

    /// Counts the bytes of `range` that were not touched before.
    fn touched<P>(&mut self, object: ObjectId, touched: &mut Object<P>, range: Range<u64>) {
        let prefix = &mut touched.touched_bytes;
        if range.end <= *prefix {
            return;
        }
        if self.counts_scattered {
            let new = self.scattered.touch(object, prefix, range, touched.bytes);
            self.live.add(0, new);
        } else if range.start <= *prefix {
            self.live.add(0, range.end - *prefix);
            *prefix = range.end;
        }
    }
}

impl<P: Copy> Objects<P> {
    pub(crate) fn new(table: Vec<Object<P>>, touch: TouchRule) -> Self {
        let counts = ObjectCounts {
            live: LiveCounter::default(),
            scattered: Scattered::default(),
            counts_scattered: false,
            placement: PlacementDigest(0),
        };
        Objects { table, touch, counts }
    }

    /// Whether the table is too large for the caches near a core, so that looking ahead pays.
    pub(crate) fn is_large(&self) -> bool {
        std::mem::size_of_val(self.table.as_slice()) > LARGE_BYTES
    }
}

/// A block of the SuperSlab allocator, and the memory that contains it.
struct AppBlock<'a, W: World> {
    mem: &'a W,
    block: Block<W::SuperSlab>,
}

impl<W: World> Copy for AppBlock<'_, W> {}

impl<W: World> Clone for AppBlock<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
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

/// The fast path of the SuperSlab allocator: the same effects as those of [`Object::place`] and [`Object::remove`], which
/// would take one or two instructions per event more here.
impl<S: Copy> Objects<Block<S>> {
    /// The object has no block: its allocation failed.
    #[inline(always)]
    pub(crate) fn without_block(&mut self, object: ObjectId) {
        self.table[object.0 as usize].place = None;
    }

    /// Places a new object of `bytes` bytes in a block. `initial_touch` is that of the touch rule.
    #[inline(always)]
    pub(crate) fn place<W: World<SuperSlab = S>>(
        &mut self,
        mem: &W,
        object: ObjectId,
        block: Block<S>,
        bytes: u64,
        initial_touch: InitialTouch,
    ) {
        self.counts.placement.note(object, identity(mem, block));
        let touched_bytes = touch_new_bytes(AppBlock { mem, block }, 0..bytes, initial_touch);
        self.table[object.0 as usize] = Object { place: Some(block), bytes, touched_bytes };
        self.counts.live.add(bytes, touched_bytes);
    }

    /// Removes an object. Returns its block, which the caller must free; `None` if its allocation had failed.
    #[inline(always)]
    pub(crate) fn remove<W: World<SuperSlab = S>>(&mut self, mem: &W, object: ObjectId) -> Option<Block<S>> {
        let Object { place, bytes, touched_bytes } = &mut self.table[object.0 as usize];
        let block = (*place)?;
        *place = None;
        let ObjectCounts { live, scattered, .. } = &mut self.counts;
        if !scattered.is_empty() {
            live.remove(0, scattered.forget(object));
        }
        if self.touch == TouchRule::AllAtDeath && *bytes > 0 {
            mem.app_write(block, 0, *bytes);
            live.add(0, *bytes);
            live.remove(0, *bytes);
        }
        live.remove(*bytes, *touched_bytes);
        Some(block)
    }
}

impl<S: Copy> Objects<Block<S>> {
    /// Fetches what `run`'s events after the next one need: first their entries of the table, then what the memory has
    /// for their blocks. An object that is not allocated yet has no block. If its id is used again in between, its block
    /// is another one. In both cases the fetch is useless, but does no harm.
    #[inline(always)]
    pub(crate) fn look_ahead<W: World<SuperSlab = S>>(&self, mem: &W, run: &CommonRun<'_>) {
        let entry = |events| self.table.get(run.object_ahead(events)?.0 as usize);
        if let Some(far) = entry(ENTRY_DISTANCE) {
            prefetch(far);
        }
        if let Some(block) = entry(SLAB_DISTANCE).and_then(|nearer| nearer.place) {
            mem.expect_use_of_slab(block);
        }
        if let Some(block) = entry(BLOCK_DISTANCE).and_then(|near| near.place) {
            mem.expect_free(block);
        }
    }
}

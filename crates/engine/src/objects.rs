//! The program's side of a trace: its live objects, its touches, and what is counted about them.

use std::ops::Range;

use hksim_policy::{Block, World};
use hksim_trace::event::{Access, InitialTouch, ObjectId};
use hksim_trace::hkt::CommonRun;

use crate::TouchRule;
use crate::initial_touch::{BlockAccess, touch_new_bytes};
use crate::live::LiveCounter;
use crate::prefetch::prefetch;
use crate::scattered::Scattered;
use crate::tables::Object;

/// A table above this size does not fit into the caches near a core (L2: 512 KiB to 2 MiB).
const LARGE_BYTES: usize = 256 << 10;
/// How many events ahead an object's data are fetched: its entry of the table, the metadata of its block's slab, and
/// what belongs to the block. An event takes some 10 ns, and an access to main memory some 100 ns.
const ENTRY_DISTANCE: usize = 36;
const SLAB_DISTANCE: usize = 24;
const BLOCK_DISTANCE: usize = 12;

/// The objects of a trace. Indexed by object id; the ids of a trace are below its `objects_peak`.
pub(crate) struct Objects<S> {
    pub(crate) table: Vec<Object<S>>,
    pub(crate) touch: TouchRule,
    pub(crate) live: LiveCounter,
    /// Empty unless `counts_scattered`: a replay must not allocate.
    pub(crate) scattered: Scattered,
    pub(crate) counts_scattered: bool,
    pub(crate) placement: PlacementDigest,
}

/// A block, and the memory that contains it.
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

/// A running digest of where every object was placed.
pub(crate) struct PlacementDigest(pub(crate) u64);

impl PlacementDigest {
    #[inline(always)]
    fn note(&mut self, object: ObjectId, ordinal: u32, offset: u32) {
        let place = u64::from(ordinal) << 32 | u64::from(offset);
        let mixed = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(object.0);
        self.0 = (self.0.rotate_left(5) ^ mixed).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
}

impl<S: Copy> Objects<S> {
    pub(crate) fn new(table: Vec<Object<S>>, touch: TouchRule) -> Self {
        Objects {
            table,
            touch,
            live: LiveCounter::default(),
            scattered: Scattered::default(),
            counts_scattered: false,
            placement: PlacementDigest(0),
        }
    }

    /// Whether the table is too large for the caches near a core, so that looking ahead pays.
    pub(crate) fn is_large(&self) -> bool {
        std::mem::size_of_val(self.table.as_slice()) > LARGE_BYTES
    }

    /// Fetches what `run`'s events after the next one need: first their entries of the table, then what the memory has
    /// for their blocks. An object that is not allocated yet has no block. If its id is used again in between, its block
    /// is another one. In both cases the fetch is useless, but does no harm.
    #[inline(always)]
    pub(crate) fn look_ahead<W: World<SuperSlab = S>>(&self, mem: &W, run: &CommonRun<'_>) {
        let entry = |events| self.table.get(run.object_ahead(events)?.0 as usize);
        if let Some(far) = entry(ENTRY_DISTANCE) {
            prefetch(far);
        }
        if let Some(block) = entry(SLAB_DISTANCE).and_then(|nearer| nearer.block) {
            mem.expect_use_of_slab(block);
        }
        if let Some(block) = entry(BLOCK_DISTANCE).and_then(|near| near.block) {
            mem.expect_free(block);
        }
    }

    /// The object has no block: its allocation failed.
    #[inline(always)]
    pub(crate) fn without_block(&mut self, object: ObjectId) {
        self.table[object.0 as usize].block = None;
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
        self.placement.note(object, mem.ordinal(block.superslab), block.offset);
        let touched_bytes = touch_new_bytes(AppBlock { mem, block }, 0..bytes, initial_touch);
        self.table[object.0 as usize] = Object { block: Some(block), bytes, touched_bytes };
        self.live.add(bytes, touched_bytes);
    }

    /// Removes an object. Returns its block, which the caller must free; `None` if its allocation had failed.
    #[inline(always)]
    pub(crate) fn remove<W: World<SuperSlab = S>>(&mut self, mem: &W, object: ObjectId) -> Option<Block<S>> {
        let Object { block: slot, bytes, touched_bytes } = &mut self.table[object.0 as usize];
        let block = (*slot)?;
        *slot = None;
        if !self.scattered.is_empty() {
            self.live.remove(0, self.scattered.forget(object));
        }
        if self.touch == TouchRule::AllAtDeath && *bytes > 0 {
            mem.app_write(block, 0, *bytes);
            self.live.add(0, *bytes);
            self.live.remove(0, *bytes);
        }
        self.live.remove(*bytes, *touched_bytes);
        Some(block)
    }

    /// Records that an object in `old` now has `bytes` bytes and is in `new`, which contains its old bytes.
    pub(crate) fn resize<W: World<SuperSlab = S>>(
        &mut self,
        mem: &W,
        object: ObjectId,
        new: Block<S>,
        bytes: u64,
        initial_touch: InitialTouch,
    ) {
        let Object { bytes: old_bytes, touched_bytes: old_touched, .. } = self.table[object.0 as usize];
        self.placement.note(object, mem.ordinal(new.superslab), new.offset);
        let new_bytes = old_bytes..bytes;
        let touched_end =
            touch_new_bytes(AppBlock { mem, block: new }, new_bytes, self.touch.initial_touch(initial_touch));
        let touched_bytes = old_touched.min(bytes);
        self.live.remove(0, self.scattered.shrink(object, old_touched, bytes));
        self.live.remove(old_bytes, old_touched);
        self.live.add(bytes, touched_bytes);
        self.table[object.0 as usize] = Object { block: Some(new), bytes, touched_bytes };
        self.count_touch(object, old_bytes..touched_end);
    }

    /// Performs a recorded access, if the touch rule follows the recording.
    pub(crate) fn access<W: World<SuperSlab = S>>(
        &mut self,
        mem: &W,
        object: ObjectId,
        offset: u64,
        bytes: u64,
        access: Access,
    ) {
        if self.touch != TouchRule::Recorded {
            return;
        }
        let &Object { block, bytes: size, .. } = &self.table[object.0 as usize];
        let (Some(block), Some(end)) = (block, offset.checked_add(bytes)) else { return };
        // A trace may contain touches beyond the object's end. Such touches are truncated.
        let end = end.min(size);
        if offset >= end {
            return;
        }
        match access {
            Access::Read => mem.app_read(block, offset, end - offset),
            Access::Write => mem.app_write(block, offset, end - offset),
        }
        self.count_touch(object, offset..end);
    }

    /// Counts the bytes of `touched` that were not touched before.
    fn count_touch(&mut self, object: ObjectId, touched: Range<u64>) {
        let &mut Object { bytes: size, touched_bytes: ref mut prefix, .. } = &mut self.table[object.0 as usize];
        if touched.end <= *prefix {
            return;
        }
        if self.counts_scattered {
            let new = self.scattered.touch(object, prefix, touched, size);
            self.live.add(0, new);
        } else if touched.start <= *prefix {
            self.live.add(0, touched.end - *prefix);
            *prefix = touched.end;
        }
    }
}

//! Counting what a heap holds, by size class: for statistics, away from every fast path.

use crate::allocator::{Allocator, Span};
use crate::classes::CLASSES_MAX;
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::meta::{SpanState, Use};

/// What a size class holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Slabs, or blocks in spans of their own.
    pub slabs: u64,
    /// Bytes of blocks that the program holds, rounded up to their class.
    pub live_bytes: u64,
    /// Blocks that were carved in them.
    pub carved: u64,
    /// Blocks that the program holds, those included that other threads freed and the owner has not collected.
    pub live: u64,
}

/// What heaps hold, by size class.
#[derive(Clone, Debug)]
pub struct Census {
    /// By class.
    pub classes: [Holding; CLASSES_MAX],
    /// Blocks above the classes and below half a SuperSlab.
    pub large: Holding,
    /// SuperSlabs that were looked into.
    pub superslabs: u64,
}

impl Census {
    /// Nothing.
    pub const fn new() -> Census {
        const NONE: Holding = Holding { slabs: 0, live_bytes: 0, carved: 0, live: 0 };
        Census { classes: [NONE; CLASSES_MAX], large: NONE, superslabs: 0 }
    }

    /// Bytes of all blocks that were counted.
    pub fn live_bytes(&self) -> u64 {
        self.classes.iter().chain([&self.large]).map(|holding| holding.live_bytes).sum()
    }
}

impl Default for Census {
    fn default() -> Census {
        Census::new()
    }
}

/// Sums over the arena table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCensus {
    /// SuperSlabs that heaps have, abandoned ones included.
    pub superslabs: u64,
    /// Empty SuperSlabs that were not purged.
    pub idle_present: u64,
    /// Huge blocks in use.
    pub huge_blocks: u64,
    /// Their usable bytes.
    pub huge_bytes: u64,
    /// Usable bytes of freed huge blocks that are kept.
    pub huge_idle_bytes: u64,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Adds what a heap holds.
    pub fn count_heap(&self, heap: &ThreadHeap<M>, census: &mut Census) {
        self.for_each_own_span(heap, |span| self.count_span(Some(heap), span, census));
        census.superslabs += self.own_superslabs(heap).count() as u64;
    }

    /// Adds what threads have left behind that ended.
    pub fn count_abandoned(&self, census: &mut Census) {
        let guard = self.mem.lock();
        for ordinal in self.listed(&self.mem.pool().abandoned) {
            self.for_each_span(self.mem.superslab(ordinal), |span| self.count_span(None, span, census));
            census.superslabs += 1;
        }
        drop(guard);
    }

    /// Sums over the arena table. Takes a time in proportion to its length.
    pub fn count_pool(&self) -> PoolCensus {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        let mut census = PoolCensus {
            superslabs: u64::from(pool.superslabs.get()),
            huge_idle_bytes: pool.huge_idle_bytes.get(),
            ..PoolCensus::default()
        };
        for entry in (0..pool.high_water.get()).map(|ordinal| self.mem.entry(ordinal)) {
            match entry.usage() {
                Use::Idle | Use::Warm if !entry.clean.get() => census.idle_present += 1,
                Use::Huge => {
                    census.huge_blocks += 1;
                    census.huge_bytes += entry.bytes.get();
                }
                _ => {}
            }
        }
        drop(guard);
        census
    }

    fn count_span(&self, heap: Option<&ThreadHeap<M>>, span: Span<M>, census: &mut Census) {
        let slab = self.slab_meta(span);
        let class = usize::from(slab.class.get());
        let holding = if slab.is_large() { &mut census.large } else { &mut census.classes[class] };
        // The bin's list is counted as used in its active slab.
        let in_bin = match heap {
            Some(heap) if slab.span_state() == SpanState::Active => self.list_length(span, heap.ready[class]),
            _ => 0,
        };
        holding.slabs += 1;
        holding.carved += u64::from(slab.carved.get());
        let live = u64::from(slab.used.get()) - in_bin;
        holding.live += live;
        holding.live_bytes += live * u64::from(slab.stride.get());
    }

    fn list_length(&self, span: Span<M>, list: crate::link::Link) -> u64 {
        let (mut next, mut count) = (list, 0);
        while let Some(at) = self.start_at(next) {
            count += 1;
            next = self.mem.read_link(span.superslab, self.link_at(at));
        }
        count
    }
}

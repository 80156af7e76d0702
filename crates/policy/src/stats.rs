//! Statistics of heaps, by size class, and of the pool. Computed on request; no fast path counts anything for them.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::heap::classes::CLASSES_MAX;
use crate::memory::Memory;
use crate::metadata::meta::{SpanState, Use};

/// Statistics of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Slabs; for large blocks: spans.
    pub slabs: u64,
    /// Bytes of live blocks, rounded up to their class.
    pub live_bytes: u64,
    /// Carved blocks.
    pub carved: u64,
    /// Live blocks, including those in front caches, and remotely freed ones that the owner has not collected yet.
    pub live: u64,
}

/// Statistics of heaps, by size class.
#[derive(Clone, Debug)]
pub struct HeapStats {
    /// By class.
    pub classes: [ClassStats; CLASSES_MAX],
    /// Large blocks.
    pub large: ClassStats,
    /// SuperSlabs that were counted.
    pub superslabs: u64,
}

impl HeapStats {
    /// All zeros.
    pub const fn new() -> HeapStats {
        const NONE: ClassStats = ClassStats { slabs: 0, live_bytes: 0, carved: 0, live: 0 };
        HeapStats { classes: [NONE; CLASSES_MAX], large: NONE, superslabs: 0 }
    }

    /// Live bytes of all classes and large blocks.
    pub fn live_bytes(&self) -> u64 {
        self.classes.iter().chain([&self.large]).map(|class_stats| class_stats.live_bytes).sum()
    }
}

impl Default for HeapStats {
    fn default() -> HeapStats {
        HeapStats::new()
    }
}

/// Statistics of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// SuperSlabs that heaps own, and abandoned ones.
    pub superslabs: u64,
    /// Empty SuperSlabs that were not purged.
    pub idle_present: u64,
    /// Huge blocks in use.
    pub huge_blocks: u64,
    /// Their usable bytes.
    pub huge_bytes: u64,
    /// Usable bytes of cached runs.
    pub huge_idle_bytes: u64,
}

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// Adds the statistics of a heap.
    pub fn add_heap_stats(&self, heap: &ThreadHeap<M>, stats: &mut HeapStats) {
        self.for_each_own_span(heap, |span| self.add_span_stats(Some(heap), span, stats));
        stats.superslabs += self.own_superslabs(heap).count() as u64;
    }

    /// Adds the statistics of abandoned SuperSlabs.
    pub fn add_abandoned_stats(&self, stats: &mut HeapStats) {
        let guard = self.mem.lock();
        for ordinal in self.listed(&self.mem.pool().abandoned) {
            self.for_each_span(self.mem.superslab(ordinal), |span| self.add_span_stats(None, span, stats));
            stats.superslabs += 1;
        }
        drop(guard);
    }

    /// The statistics of the pool. Takes time proportional to the length of the arena table.
    pub fn pool_stats(&self) -> PoolStats {
        let guard = self.mem.lock();
        let pool = self.mem.pool();
        let mut stats = PoolStats {
            superslabs: u64::from(pool.superslabs.get()),
            huge_idle_bytes: pool.huge_idle_bytes.get(),
            ..PoolStats::default()
        };
        for entry in (0..pool.high_water.get()).map(|ordinal| self.mem.entry(ordinal)) {
            match entry.usage() {
                Use::Idle | Use::Warm if !entry.clean.get() => stats.idle_present += 1,
                Use::Huge => {
                    stats.huge_blocks += 1;
                    stats.huge_bytes += entry.bytes.get();
                }
                _ => {}
            }
        }
        drop(guard);
        stats
    }

    fn add_span_stats(&self, heap: Option<&ThreadHeap<M>>, span: Span<M>, stats: &mut HeapStats) {
        let slab = self.span_meta(span);
        let class = usize::from(slab.class.get());
        let class_stats = if slab.is_large() { &mut stats.large } else { &mut stats.classes[class] };
        // The active slab counts the blocks in its bin's list as used.
        let in_bin = match heap {
            Some(heap) if slab.span_state() == SpanState::Active => self.list_length(span, heap.ready[class]),
            _ => 0,
        };
        class_stats.slabs += 1;
        class_stats.carved += u64::from(slab.carved.get());
        let live = u64::from(slab.used.get()) - in_bin;
        class_stats.live += live;
        class_stats.live_bytes += live * u64::from(slab.stride.get());
    }

    fn list_length(&self, span: Span<M>, list: crate::heap::link::Link) -> u64 {
        let (mut next, mut count) = (list, 0);
        while let Some(at) = self.start_at(next) {
            count += 1;
            next = self.mem.read_link(span.superslab, self.link_at(at));
        }
        count
    }
}

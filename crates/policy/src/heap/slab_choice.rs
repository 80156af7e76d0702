//! Which of a bin's partial slabs is refilled from next.

use crate::allocator::{Allocator, Span};
use crate::geometry::Geometry;
use crate::heap::ThreadHeap;
use crate::memory::Memory;
use crate::path::Path;
use crate::policy::vocabulary::SlabChoice;

impl<M: Memory, G: Geometry> Allocator<M, G> {
    /// The partial slab that the policy chooses; `None` if the bin has none. `fullest` and `lowest` look at all of them.
    pub(crate) fn choose_partial(&self, heap: &ThreadHeap<M>, class: usize) -> Option<Span<M>> {
        let bin = &heap.bins[class];
        match self.placement.slab_choice {
            SlabChoice::Oldest => self.span_of(bin.partial_head),
            SlabChoice::Newest => self.span_of(bin.partial_tail),
            SlabChoice::Fullest => self.least_partial(heap, class, |span| {
                self.mem.path(Path::SlabCompared, 1);
                u32::MAX - self.span_meta(span).used.get()
            }),
            SlabChoice::Lowest => self.least_partial(heap, class, |span| {
                self.mem.path(Path::AddressCompared, 1);
                (self.mem.ordinal(span.superslab), span.slice)
            }),
        }
    }

    /// The partial slab with the least key; of several, the one that has been listed longest.
    fn least_partial<K: Ord>(&self, heap: &ThreadHeap<M>, class: usize, key: impl Fn(Span<M>) -> K) -> Option<Span<M>> {
        let mut next = heap.bins[class].partial_head;
        let mut least: Option<(K, Span<M>)> = None;
        while let Some(span) = self.span_of(next) {
            let own = key(span);
            if least.as_ref().is_none_or(|(key, _)| own < *key) {
                least = Some((own, span));
            }
            next = self.span_meta(span).next.get();
        }
        least.map(|(_, span)| span)
    }
}

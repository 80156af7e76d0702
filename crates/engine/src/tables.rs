//! The driver's tables: O(threads + peak live objects), allocated once.

use hksim_policy::{Block, ThreadHeap, World};

/// A live object of the trace, and its block.
pub(crate) struct Object<S> {
    pub(crate) block: Option<Block<S>>,
    pub(crate) bytes: u64,
    /// The length of the touched prefix. [`crate::scattered::Scattered`] stores the touched bytes beyond it.
    pub(crate) touched_bytes: u64,
}

/// The driver's state for each thread and object.
pub struct Tables<W: World> {
    pub(crate) heaps: Vec<Option<ThreadHeap<W>>>,
    pub(crate) objects: Vec<Object<W::SuperSlab>>,
}

impl<W: World> Tables<W> {
    /// Empty tables for a trace with `threads` threads and at most `objects_peak` live objects.
    pub fn new(threads: u32, objects_peak: u32) -> Tables<W> {
        let empty = || Object { block: None, bytes: 0, touched_bytes: 0 };
        Tables { heaps: (0..threads).map(|_| None).collect(), objects: (0..objects_peak).map(|_| empty()).collect() }
    }

    /// The memory of the tables, as (start, bytes). A replay makes it resident before it starts.
    pub fn extents(&self) -> [(*const u8, usize); 2] {
        [
            (self.heaps.as_ptr().cast(), std::mem::size_of_val(self.heaps.as_slice())),
            (self.objects.as_ptr().cast(), std::mem::size_of_val(self.objects.as_slice())),
        ]
    }
}

//! The driver's own tables: O(threads + peak live objects), made once.

use hksim_policy::{Block, ThreadHeap, World};

/// A live object of the trace, and where it is.
pub(crate) struct Object<S> {
    pub(crate) block: Option<Block<S>>,
    pub(crate) bytes: u64,
    /// Every byte below this one is touched; what else is, [`crate::scattered::Scattered`] knows.
    pub(crate) touched_bytes: u64,
}

/// What a driver knows of threads and objects.
pub struct Tables<W: World> {
    pub(crate) heaps: Vec<Option<ThreadHeap<W>>>,
    pub(crate) objects: Vec<Object<W::SuperSlab>>,
}

impl<W: World> Tables<W> {
    /// Empty tables for a trace with so many threads, and at most so many objects live at once.
    pub fn new(threads: u32, objects_peak: u32) -> Tables<W> {
        let empty = || Object { block: None, bytes: 0, touched_bytes: 0 };
        Tables { heaps: (0..threads).map(|_| None).collect(), objects: (0..objects_peak).map(|_| empty()).collect() }
    }

    /// Where the tables lie, as (start, bytes): what a replay makes resident before it starts.
    pub fn extents(&self) -> [(*const u8, usize); 2] {
        [
            (self.heaps.as_ptr().cast(), std::mem::size_of_val(self.heaps.as_slice())),
            (self.objects.as_ptr().cast(), std::mem::size_of_val(self.objects.as_slice())),
        ]
    }
}

//! The driver's tables: O(threads + peak live objects), allocated once.

use crate::heaps::Heaps;
use crate::object::Object;

/// The driver's state for each thread and object.
pub struct Tables<A: Heaps> {
    pub(crate) heaps: Vec<Option<A::Heap>>,
    pub(crate) objects: Vec<Object<A::Place>>,
}

impl<A: Heaps> Tables<A> {
    /// Empty tables for a trace with `threads` threads and at most `objects_peak` live objects.
    pub fn new(threads: u32, objects_peak: u32) -> Tables<A> {
        let heaps = (0..threads).map(|_| None).collect();
        Tables { heaps, objects: vec![Object::DEAD; objects_peak as usize] }
    }

    /// The memory of the tables, as (start, bytes). A replay makes it resident before it starts.
    pub fn extents(&self) -> [(*const u8, usize); 2] {
        [
            (self.heaps.as_ptr().cast(), std::mem::size_of_val(self.heaps.as_slice())),
            (self.objects.as_ptr().cast(), std::mem::size_of_val(self.objects.as_slice())),
        ]
    }
}

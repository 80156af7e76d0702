//! The links of the free blocks of one SuperSlab.
//!
//! A slab's links are stored densely, although its blocks are not, so that the links of many live blocks fit into the
//! processor's caches. The entry of a link is that of its offset, divided by the largest power of two up to the stride:
//! the blocks of a slab have different entries. An entry stores its offset, too.

use std::cell::Cell;
use std::ops::Range;

use hksim_engine::prefetch;
use hksim_policy::memory::Link;

use super::zeroed::zeroed_cells;

/// log2 of the smallest stride.
const SHIFT_MIN: u32 = 3;

/// The link that was written last at one of the offsets of an entry, after that offset plus one. Zero if none was
/// written, or its page was dropped.
type Entry = u64;

/// Where the entries of a slice are: that of offset `at` of the SuperSlab is number `(at >> shift) + first`, wrapping.
#[derive(Clone, Copy, Default)]
struct Lookup {
    first: u32,
    shift: u32,
}

/// The entries that a slice owns.
#[derive(Clone, Copy, Default)]
struct Region {
    start: u32,
    count: u32,
}

/// The links of a SuperSlab.
pub(crate) struct Links {
    slice_shift: u32,
    /// By slice.
    lookups: Box<[Cell<Lookup>]>,
    /// By slice.
    regions: Box<[Cell<Region>]>,
    /// Enough for the smallest strides. Parts that were never written use no memory.
    entries: Box<[Cell<Entry>]>,
    /// The end of the last region.
    end: Cell<u32>,
}

impl Links {
    pub(crate) fn new(slices: u32, slice_shift: u32) -> Links {
        let links = Links {
            slice_shift,
            lookups: zeroed_cells(slices as usize),
            regions: zeroed_cells(slices as usize),
            entries: zeroed_cells((slices as usize) << (slice_shift - SHIFT_MIN)),
            end: Cell::new(0),
        };
        // A span that is no slab has one block, so one entry in each slice is enough.
        links.begin_slab(0..slices, 1 << slice_shift);
        links
    }

    /// From now on, these slices have a slab whose blocks are `stride` bytes apart.
    pub(crate) fn begin_slab(&self, slices: Range<u32>, stride: u32) {
        let shift = stride.ilog2().min(self.slice_shift);
        slices.filter(|&slice| self.lookups[slice as usize].get().shift != shift).for_each(|slice| {
            self.set_shift(slice, shift);
        });
    }

    /// Reads a link.
    ///
    /// # Panics
    /// If no link was written at `at` since the page was last purged: a bug in the allocator.
    #[inline(always)]
    pub(crate) fn read(&self, at: u32) -> Link {
        let entry = self.entry(at).get();
        assert!(entry >> 32 == u64::from(at) + 1, "the allocator read a link that was never written, at offset {at}");
        Link::from_bits(entry as u32)
    }

    #[inline(always)]
    pub(crate) fn write(&self, at: u32, link: Link) {
        self.entry(at).set((u64::from(at) + 1) << 32 | u64::from(link.to_bits()));
    }

    /// Fetches a link into the processor's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: u32) {
        prefetch(self.entry(at));
    }

    /// Forgets the links in a range that was dropped.
    pub(crate) fn lose(&self, dropped: Range<u32>) {
        let last = dropped.end - 1;
        for slice in dropped.start >> self.slice_shift..=last >> self.slice_shift {
            let start = slice << self.slice_shift;
            let end = start + ((1 << self.slice_shift) - 1);
            let (first, last) = (self.index(dropped.start.max(start)), self.index(last.min(end)));
            let is_lost = |entry: Entry| entry != 0 && dropped.contains(&((entry >> 32) as u32 - 1));
            self.entries[first..=last].iter().filter(|entry| is_lost(entry.get())).for_each(|entry| entry.set(0));
        }
    }

    #[inline(always)]
    fn entry(&self, at: u32) -> &Cell<Entry> {
        &self.entries[self.index(at)]
    }

    #[inline(always)]
    fn index(&self, at: u32) -> usize {
        let Lookup { first, shift } = self.lookups[(at >> self.slice_shift) as usize].get();
        (at >> (shift % u32::BITS)).wrapping_add(first) as usize
    }

    /// Gives a slice entries for another stride, and forgets its links.
    fn set_shift(&self, slice: u32, shift: u32) {
        let count = 1 << (self.slice_shift - shift);
        let region = &self.regions[slice as usize];
        if region.get().count < count {
            region.set(Region::default());
            if self.entries.len() < (self.end.get() + count) as usize {
                self.close_gaps();
            }
            region.set(Region { start: self.end.get(), count });
            self.end.set(self.end.get() + count);
        }
        let start = region.get().start;
        self.entries[start as usize..][..count as usize].iter().for_each(|entry| entry.set(0));
        self.look_up(slice, start, shift);
    }

    fn look_up(&self, slice: u32, start: u32, shift: u32) {
        let first = start.wrapping_sub((slice << self.slice_shift) >> shift);
        self.lookups[slice as usize].set(Lookup { first, shift });
    }

    /// Moves all regions together, and takes from each slice what its current stride does not need.
    #[cold]
    fn close_gaps(&self) {
        let mut kept: Vec<Entry> = Vec::new();
        for (slice, region) in (0..).zip(&self.regions) {
            let Region { start, count } = region.get();
            let shift = self.lookups[slice as usize].get().shift;
            let count = count.min(1 << (self.slice_shift - shift));
            region.set(Region { start: kept.len() as u32, count });
            self.look_up(slice, kept.len() as u32, shift);
            kept.extend(self.entries[start as usize..][..count as usize].iter().map(Cell::get));
        }
        self.end.set(kept.len() as u32);
        self.entries.iter().zip(kept).for_each(|(entry, kept)| entry.set(kept));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SLICES: u32 = 8;
    const SLICE_SHIFT: u32 = 14;

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u32) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % u64::from(end)) as u32
        }
    }

    fn is_written(links: &Links, at: u32) -> bool {
        links.entry(at).get() >> 32 == u64::from(at) + 1
    }

    /// Slabs of random strides come and go, as in an allocator. A map by offset knows the links.
    #[test]
    fn every_link_is_read_as_it_was_written() {
        for seed in 0..40 {
            let (mut random, links) = (Random(seed), Links::new(SLICES, SLICE_SHIFT));
            let mut model: HashMap<u32, Link> = HashMap::new();
            let mut strides = [1u32 << SLICE_SHIFT; SLICES as usize];
            for _ in 0..20_000 {
                let slice = random.below(SLICES);
                let stride = strides[slice as usize];
                let at = (slice << SLICE_SHIFT) + random.below((1 << SLICE_SHIFT) / stride) * stride;
                match random.below(200) {
                    0 => {
                        let largest = if random.below(3) == 0 { 4 } else { 2048 };
                        strides[slice as usize] = 8 * (1 + random.below(largest));
                        // An allocator writes each link of a new slab before it reads the link.
                        model.retain(|at, _| at >> SLICE_SHIFT != slice);
                        links.begin_slab(slice..slice + 1, strides[slice as usize]);
                    }
                    1..=3 => {
                        let page = at / 4096 * 4096;
                        links.lose(page..page + 4096);
                        model.retain(|other, _| other / 4096 != page / 4096);
                        assert!(!is_written(&links, at), "seed {seed}, offset {at}");
                    }
                    4..=120 => {
                        let link = Link::from_bits(random.below(1 << 20));
                        links.write(at, link);
                        model.insert(at, link);
                    }
                    _ => {
                        if let Some(&link) = model.get(&at) {
                            assert_eq!(links.read(at), link, "seed {seed}, offset {at}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "never written, at offset 4096")]
    fn a_link_that_was_dropped_is_not_read() {
        let links = Links::new(SLICES, SLICE_SHIFT);
        links.begin_slab(0..2, 48);
        links.write(4080, Link::from_bits(1));
        links.write(4096, Link::from_bits(1));
        links.lose(4096..8192);
        assert_eq!(links.read(4080), Link::from_bits(1));
        links.read(4096);
    }
}

//! The links of free blocks.
//!
//! A slab's links are stored densely, although its blocks are not, so that the links of many live blocks fit into the
//! processor's caches. The entry of a link is that of its offset, divided by the largest power of two up to the stride:
//! the blocks of a slab have different entries.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use hksim_policy::PAGE_BYTES;
use hksim_policy::memory::Link;

use super::growing::GrowingTable;

/// log2 of the page size. An entry belongs to one page at most, so that a page can lose its links.
const PAGE_SHIFT: u32 = PAGE_BYTES.ilog2();

/// The entry of an offset without a link: none was written, or its page was dropped. Other entries are a link plus one.
const NO_LINK: u32 = 0;

/// Where the entries of a span are: that of byte `at` of the reservation is number `(at >> shift) + first`, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPlace {
    first: u32,
    shift: u32,
    /// The first byte of the span's SuperSlab.
    superslab_at: u64,
}

impl LinkPlace {
    /// The place of no links.
    pub(crate) const NONE: LinkPlace = LinkPlace { first: 0, shift: 0, superslab_at: 0 };

    /// The byte of the reservation at an offset in the span's SuperSlab.
    #[inline(always)]
    pub(crate) fn at(self, offset: u32) -> u64 {
        self.superslab_at + u64::from(offset)
    }

    #[inline(always)]
    fn entry(self, at: u64) -> usize {
        ((at >> (self.shift % u64::BITS)) as u32).wrapping_add(self.first) as usize
    }

    /// Whether it is the place of a slab.
    fn is_of_slab(self) -> bool {
        self.shift <= PAGE_SHIFT
    }
}

/// The links of all spans. Bytes are counted from the start of the reservation.
#[derive(Default)]
pub(crate) struct Links {
    entries: GrowingTable,
    /// The first entries of regions that are not in use, by their number of entries.
    unused: RefCell<BTreeMap<u32, Vec<u32>>>,
}

impl Links {
    /// The place of the spans of a SuperSlab that are no slab: they have one block, so one entry in each slice is
    /// enough.
    pub(crate) fn place_of_others(&self, superslab: Range<u64>, slice_shift: u32) -> LinkPlace {
        let superslab_at = superslab.start;
        LinkPlace { superslab_at, ..self.place(superslab, slice_shift) }
    }

    /// The place of a slab whose blocks are `stride` bytes apart, in the SuperSlab that starts at `superslab_at`.
    pub(crate) fn begin_slab(&self, superslab_at: u64, bytes: Range<u64>, stride: u32) -> LinkPlace {
        LinkPlace { superslab_at, ..self.place(bytes, stride.ilog2().min(PAGE_SHIFT)) }
    }

    /// Ends the use of a slab's place.
    pub(crate) fn end_slab(&self, place: LinkPlace, bytes: Range<u64>) {
        let Range { start, end } = entries(place, bytes);
        self.unused.borrow_mut().entry((end - start) as u32).or_default().push(start as u32);
    }

    fn place(&self, bytes: Range<u64>, shift: u32) -> LinkPlace {
        let count = (bytes.end >> shift) - (bytes.start >> shift);
        let unused = self.unused.borrow_mut().get_mut(&(count as u32)).and_then(Vec::pop);
        let start = match unused {
            Some(start) => {
                self.entries.clear(start as usize..start as usize + count as usize);
                start
            }
            None => match u32::try_from(self.entries.grow(count as usize)) {
                Ok(start) => start,
                Err(_) => panic!("the links of more than 16 GiB of the smallest blocks do not fit into the simulator"),
            },
        };
        LinkPlace { first: start.wrapping_sub((bytes.start >> shift) as u32), shift, ..LinkPlace::NONE }
    }

    /// Reads a link.
    ///
    /// # Panics
    /// If no link was written at `at` since the slab began or the page was last purged: a bug in the allocator. (A large
    /// block's link stays when its page is purged.)
    #[inline(always)]
    pub(crate) fn read(&self, place: LinkPlace, at: u64) -> Link {
        match self.entries.get(place.entry(at)) {
            NO_LINK => never_written(at),
            entry => Link::from_bits(entry - 1),
        }
    }

    #[inline(always)]
    pub(crate) fn write(&self, place: LinkPlace, at: u64, link: Link) {
        self.entries.set(place.entry(at), link.to_bits() + 1);
    }

    /// Fetches a link into the processor's caches.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: LinkPlace, at: u64) {
        self.entries.prefetch(place.entry(at));
    }

    /// Forgets the links of a page that was dropped, if it belongs to a slab.
    pub(crate) fn lose_page(&self, place: LinkPlace, at: u64) {
        if place.is_of_slab() {
            self.entries.clear(entries(place, at..at + PAGE_BYTES));
        }
    }
}

/// The entries of a range of bytes.
fn entries(place: LinkPlace, bytes: Range<u64>) -> Range<usize> {
    let start = place.entry(bytes.start);
    start..start + ((bytes.end - bytes.start) >> place.shift) as usize
}

#[cold]
#[inline(never)]
fn never_written(at: u64) -> ! {
    panic!("the allocator read a link that was never written, at byte {at} of the reservation")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SLICES: u64 = 8;
    const SLICE_SHIFT: u32 = 14;
    /// The slices start here.
    const BASE: u64 = 5 << 20;

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// A slab: its bytes, its stride, and where its links are.
    #[derive(Clone)]
    struct Slab {
        bytes: Range<u64>,
        stride: u64,
        place: LinkPlace,
    }

    impl Slab {
        fn begin(links: &Links, random: &mut Random, slices: Range<u64>) -> Slab {
            let largest = if random.below(3) == 0 { 4 } else { 2048 };
            let stride = 8 * (1 + random.below(largest));
            let bytes = BASE + (slices.start << SLICE_SHIFT)..BASE + (slices.end << SLICE_SHIFT);
            Slab { place: links.begin_slab(BASE, bytes.clone(), stride as u32), bytes, stride }
        }
    }

    fn is_written(links: &Links, place: LinkPlace, at: u64) -> bool {
        links.entries.get(place.entry(at)) != NO_LINK
    }

    /// Slabs of random strides, of one to three slices, come and go, as in an allocator. A map by byte knows the links.
    #[test]
    fn every_link_is_read_as_it_was_written() {
        for seed in 0..40 {
            let (mut random, links) = (Random(seed), Links::default());
            let mut model: HashMap<u64, Link> = HashMap::new();
            let mut slabs: Vec<Slab> = [0..1, 1..3, 3..6, 6..SLICES]
                .into_iter()
                .map(|slices| Slab::begin(&links, &mut random, slices))
                .collect();
            for _ in 0..20_000 {
                let number = random.below(slabs.len() as u64) as usize;
                let Slab { bytes, stride, place } = slabs[number].clone();
                let at = bytes.start + random.below((bytes.end - bytes.start) / stride) * stride;
                match random.below(200) {
                    0 => {
                        model.retain(|at, _| !bytes.contains(at));
                        links.end_slab(place, bytes.clone());
                        let slices = (bytes.start - BASE) >> SLICE_SHIFT..(bytes.end - BASE) >> SLICE_SHIFT;
                        slabs[number] = Slab::begin(&links, &mut random, slices);
                    }
                    1..=3 => {
                        let page = at / PAGE_BYTES * PAGE_BYTES;
                        links.lose_page(place, page);
                        model.retain(|other, _| other / PAGE_BYTES != at / PAGE_BYTES);
                        assert!(!is_written(&links, place, at), "seed {seed}, byte {at}");
                    }
                    4..=120 => {
                        let link = Link::from_bits(random.below(1 << 20) as u32);
                        links.write(place, at, link);
                        model.insert(at, link);
                    }
                    _ => match model.get(&at) {
                        Some(&link) => assert_eq!(links.read(place, at), link, "seed {seed}, byte {at}"),
                        None => assert!(!is_written(&links, place, at), "seed {seed}, byte {at}"),
                    },
                }
            }
        }
    }

    #[test]
    fn a_place_is_used_again() {
        let links = Links::default();
        let one = links.begin_slab(0, 0..1 << 14, 48);
        links.write(one, 96, Link::from_bits(7));
        links.end_slab(one, 0..1 << 14);
        let other = links.begin_slab(0, 1 << 14..2 << 14, 32);
        assert!(!is_written(&links, other, (1 << 14) + 96), "the links of the former slab are gone");
        assert_eq!(other.entry(1 << 14), one.entry(0));
        assert_eq!((other.at(5), links.begin_slab(1 << 20, 3 << 20..4 << 20, 8).at(5)), (5, (1 << 20) + 5));
    }

    #[test]
    #[should_panic(expected = "never written, at byte 4096")]
    fn a_link_that_was_dropped_is_not_read() {
        let links = Links::default();
        let place = links.begin_slab(0, 0..2 << 14, 48);
        links.write(place, 4080, Link::from_bits(1));
        links.write(place, 4096, Link::from_bits(1));
        links.lose_page(place, 4096);
        assert_eq!(links.read(place, 4080), Link::from_bits(1));
        links.read(place, 4096);
    }
}

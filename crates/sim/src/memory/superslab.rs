//! The simulator's representation of a SuperSlab: metadata, and where links are, without contents.

use std::cell::Cell;
use std::ops::Range;

use hksim_policy::layout::{Layout, SPANS_AT};
use hksim_policy::meta::{SpanMeta, SuperSlabMeta};
use hksim_policy::{PAGE_BYTES, Word};

use super::links::LinkPlace;

/// Bytes of a native word.
const WORD_BYTES: usize = 8;

/// A simulated atomic word. One OS thread drives all heaps, so a `Cell` is enough.
#[derive(Default)]
pub struct SimWord {
    value: Cell<u64>,
    /// Number of writes, including those that do not change the value. In native memory, each of them writes to the
    /// page, even a failing compare-exchange.
    writes: Cell<u32>,
}

impl SimWord {
    fn write(&self, value: u64) {
        self.value.set(value);
        self.writes.set(self.writes.get().wrapping_add(1));
    }

    /// Number of writes.
    pub(super) fn writes(&self) -> u32 {
        self.writes.get()
    }
}

impl Word for SimWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.value.get()
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.write(value);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        let found = self.value.get();
        self.write(value);
        found
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.value.get();
        self.write(if found == current { new } else { found });
        if found == current { Ok(found) } else { Err(found) }
    }
}

/// One slice in the simulator.
pub(crate) struct SimSlice {
    pub(crate) meta: SpanMeta,
    /// Where the links of its span are.
    pub(crate) links: Cell<LinkPlace>,
}

/// One SuperSlab in the simulator.
pub(crate) struct SimSuperSlab {
    pub(crate) meta: SuperSlabMeta<SimWord>,
    pub(crate) slices: Box<[SimSlice]>,
    pub(crate) remote: Box<[SimWord]>,
    pub(crate) message_next: Box<[SimWord]>,
    /// Where the links are of slices that belong to no slab.
    links_of_others: LinkPlace,
    /// Whether its metadata is in memory: written, and not dropped since.
    has_meta: Cell<bool>,
}

impl SimSuperSlab {
    pub(crate) fn new(slices: u32, links_of_others: LinkPlace) -> SimSuperSlab {
        let slice = |_| SimSlice { meta: SpanMeta::new(), links: Cell::new(links_of_others) };
        SimSuperSlab {
            meta: SuperSlabMeta::new(SimWord::default()),
            slices: (0..slices).map(slice).collect(),
            remote: (0..slices).map(|_| SimWord::default()).collect(),
            message_next: (0..slices).map(|_| SimWord::default()).collect(),
            links_of_others,
            has_meta: Cell::new(false),
        }
    }

    /// Records where the links of a slab are that has these slices.
    pub(crate) fn begin_slab(&self, slices: Range<u32>, links: LinkPlace) {
        slices.for_each(|slice| self.slices[slice as usize].links.set(links));
    }

    /// Records that these slices have no span. Returns where the links of their slab were, if they had one.
    pub(crate) fn end_span(&self, slices: Range<u32>) -> Option<LinkPlace> {
        let before = self.slices[slices.start as usize].links.get();
        self.begin_slab(slices, self.links_of_others);
        (before != self.links_of_others).then_some(before)
    }

    /// Zeroes the metadata, before it is initialised.
    pub(crate) fn zero_meta(&self) {
        self.has_meta.set(true);
        self.slices.iter().for_each(|slice| slice.meta.clear());
        self.remote.iter().chain(&self.message_next).for_each(|word| word.store(0));
    }

    /// Records that the memory of the metadata was dropped.
    pub(crate) fn drop_meta(&self) {
        self.has_meta.set(false);
    }

    /// Whether its metadata is in memory.
    pub(crate) fn has_meta(&self) -> bool {
        self.has_meta.get()
    }

    /// The non-zero parts of the metadata, as byte ranges from its start. The header is never zero, because it records
    /// the slices that are free or used.
    pub(crate) fn meta_bytes(&self, layout: &Layout) -> impl Iterator<Item = Range<u64>> + '_ {
        let item = |first: u32, index: usize, size: usize| {
            let start = u64::from(first) + (index * size) as u64;
            start..start + size as u64
        };
        let slabs = self.slices.iter().enumerate().filter(|(_, slice)| !slice.meta.is_clear());
        let words = |words: &'_ [SimWord], first: u32| {
            let set: Vec<usize> = (0..words.len()).filter(|&slice| words[slice].load() != 0).collect();
            set.into_iter().map(move |slice| item(first, slice, WORD_BYTES))
        };
        std::iter::once(0..u64::from(SPANS_AT))
            .chain(slabs.map(move |(slice, _)| item(SPANS_AT, slice, size_of::<SpanMeta>())))
            .chain(words(&self.remote, layout.remote_words))
            .chain(words(&self.message_next, layout.message_links))
    }

    /// Whether page `page` of the metadata holds a non-zero byte.
    pub(crate) fn meta_page_holds_bytes(&self, page: u64, layout: &Layout) -> bool {
        let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
        self.has_meta() && self.meta_bytes(layout).any(|bytes| bytes.start < end && start < bytes.end)
    }
}

//! What the simulator holds in place of a SuperSlab's bytes: metadata, links and header tags, no contents.

use std::cell::{Cell, OnceCell};

use hksim_policy::Word;
use hksim_policy::memory::Link;
use hksim_policy::meta::{SlabMeta, SuperSlabMeta};

use super::zeroed::zeroed_cells;

/// The simulated remote word: one OS thread drives all heaps.
#[derive(Default)]
#[repr(transparent)]
pub struct SimWord(Cell<u64>);

impl Word for SimWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.0.get()
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.0.set(value);
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.0.replace(value)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        match self.0.get() {
            found if found == current => {
                self.0.set(new);
                Ok(found)
            }
            found => Err(found),
        }
    }
}

/// Blocks start at multiples of this, so links and tags are indexed by it.
const GRANULE_BYTES: u32 = 8;

/// One SuperSlab in the simulator.
pub(crate) struct SimSuperSlab {
    pub(crate) meta: SuperSlabMeta<SimWord>,
    pub(crate) slabs: Box<[SlabMeta]>,
    pub(crate) remote: Box<[SimWord]>,
    pub(crate) mail: Box<[SimWord]>,
    links: Box<[Cell<u32>]>,
    tags: OnceCell<Box<[Cell<u8>]>>,
}

impl SimSuperSlab {
    pub(crate) fn new(bytes: u64, units: u32) -> SimSuperSlab {
        SimSuperSlab {
            meta: SuperSlabMeta::new(SimWord::default()),
            slabs: (0..units).map(|_| SlabMeta::new()).collect(),
            remote: (0..units).map(|_| SimWord::default()).collect(),
            mail: (0..units).map(|_| SimWord::default()).collect(),
            links: zeroed_cells((bytes / u64::from(GRANULE_BYTES)) as usize),
            tags: OnceCell::new(),
        }
    }

    /// Reads a link.
    ///
    /// # Panics
    /// If none was written there since the page was last purged: the policy must never do that.
    #[inline(always)]
    pub(crate) fn read_link(&self, at: u32) -> Link {
        let stored = self.links[(at / GRANULE_BYTES) as usize].get();
        assert!(stored != 0, "the policy read a link that was never written, at offset {at}");
        Link::from_bits(stored - 1)
    }

    #[inline(always)]
    pub(crate) fn write_link(&self, at: u32, link: Link) {
        // Stored plus one, so that zero is a link that was never written.
        self.links[(at / GRANULE_BYTES) as usize].set(link.to_bits() + 1);
    }

    fn tags(&self) -> &[Cell<u8>] {
        self.tags.get_or_init(|| zeroed_cells(self.links.len()))
    }

    pub(crate) fn read_tag(&self, at: u32) -> u8 {
        self.tags()[(at / GRANULE_BYTES) as usize].get()
    }

    pub(crate) fn write_tag(&self, at: u32, tag: u8) {
        self.tags()[(at / GRANULE_BYTES) as usize].set(tag);
    }

    /// A page of it is gone, with the links and tags on it.
    pub(crate) fn lose(&self, at: u32, bytes: u32) {
        let granules = (at / GRANULE_BYTES) as usize..((at + bytes) / GRANULE_BYTES) as usize;
        self.links[granules.clone()].iter().for_each(|link| link.set(0));
        if let Some(tags) = self.tags.get() {
            tags[granules].iter().for_each(|tag| tag.set(0));
        }
    }
}

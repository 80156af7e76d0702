//! A SuperSlab's metadata as plain structs, and whether its memory is still intact.

use std::cell::Cell;

use hksim_policy::Word;
use hksim_policy::memory::Link;
use hksim_policy::meta::{SlabId, SpanMeta, SpanState, SuperSlabMeta};

/// Maximum number of slices in a SuperSlab.
const SLICES_MAX: u32 = 512;

/// A single-threaded atomic word.
#[derive(Default)]
pub struct PlainWord(Cell<u64>);

impl Word for PlainWord {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn store(&self, value: u64) {
        self.0.set(value);
    }

    fn swap(&self, value: u64) -> u64 {
        self.0.replace(value)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.0.get();
        if found == current {
            self.0.set(new);
            Ok(found)
        } else {
            Err(found)
        }
    }
}

/// The metadata of one SuperSlab.
pub(crate) struct PlainSuperSlab<W> {
    /// Whether the metadata was initialised and neither purged nor overwritten since.
    pub(crate) has_metadata: Cell<bool>,
    pub(crate) meta: SuperSlabMeta<W>,
    pub(crate) slabs: Vec<SpanMeta>,
    pub(crate) remote: Vec<W>,
    pub(crate) message_next: Vec<W>,
}

impl<W: Word + Default> PlainSuperSlab<W> {
    pub(crate) fn new(slices: u32) -> PlainSuperSlab<W> {
        let words = || (0..slices).map(|_| W::default()).collect();
        PlainSuperSlab {
            has_metadata: Cell::new(false),
            meta: SuperSlabMeta::new(W::default()),
            slabs: (0..slices).map(|_| SpanMeta::new()).collect(),
            remote: words(),
            message_next: words(),
        }
    }

    /// Zeroes all metadata, as the contract of `init_meta` requires.
    pub(crate) fn clear(&self) {
        clear_meta(&self.meta);
        self.slabs.iter().for_each(clear_slab);
        self.remote.iter().chain(&self.message_next).for_each(|word| word.store(0));
        self.has_metadata.set(true);
    }
}

fn clear_meta<W: Word>(meta: &SuperSlabMeta<W>) {
    meta.owner.store(0);
    for bits in [&meta.free, &meta.clean, &meta.zero] {
        bits.put(0, SLICES_MAX, false);
    }
    for cell in [
        &meta.used_slices,
        &meta.available_next,
        &meta.available_prev,
        &meta.purge_next,
        &meta.purge_prev,
        &meta.own_next,
        &meta.own_prev,
    ] {
        cell.set(0);
    }
    meta.in_available.set(false);
    meta.in_purge.set(false);
    meta.purge_at_ns.set(0);
}

fn clear_slab(slab: &SpanMeta) {
    slab.next.set(SlabId::NONE);
    slab.prev.set(SlabId::NONE);
    slab.local_free.set(Link::NONE);
    slab.carved.set(0);
    for cell in [&slab.used, &slab.key, &slab.capacity, &slab.stride, &slab.area] {
        cell.set(0);
    }
    slab.span_back.set(0);
    slab.span_slices.set(0);
    slab.class.set(0);
    slab.set_state(SpanState::None);
    slab.owner_tag.clear();
    slab.zeroed.set(false);
    slab.fresh.set(false);
}

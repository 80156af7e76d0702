//! Detects writes to metadata. They matter after a fork, when a write copies a page and a read does not.
//!
//! The allocator gets references to metadata, through which it reads or writes. A digest of each referenced item is
//! stored, and compared at the next access to metadata and after the event: a changed digest means a write. The
//! allocator never writes a field with its current value ([`Field`]).

use std::cell::{Cell, RefCell};

use hksim_policy::bits::SliceBits;
use hksim_policy::field::Field;
use hksim_policy::meta::{Entry, EntryList, PoolMeta, SpanMeta, SuperSlabMeta};

use super::SimWord;

/// An item of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaItem {
    /// The pool's control block.
    Pool,
    /// An entry of the arena table.
    Entry(u32),
    /// A heap's message queue word.
    MessageQueue(u32),
    /// An entry of a heap's front cache.
    FrontEntry(u32, u32),
    /// The header of a SuperSlab's metadata.
    Header(u32),
    /// The metadata of a slice.
    Slab(u32, u32),
    /// A slice's remote word.
    Remote(u32, u32),
    /// A slice's link in a message queue.
    MessageNext(u32, u32),
}

/// Items referenced since the last check, with their digests.
#[derive(Default)]
pub(super) struct MetaTracker {
    is_on: Cell<bool>,
    seen: RefCell<Vec<(MetaItem, u64)>>,
}

impl MetaTracker {
    pub(super) fn switch_on(&self) {
        self.is_on.set(true);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Whether no item was referenced since the last check.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.seen.borrow().is_empty()
    }

    /// Stores an item's digest, once.
    pub(super) fn remember(&self, item: MetaItem, digest: impl FnOnce() -> u64) {
        let mut seen = self.seen.borrow_mut();
        if !seen.iter().any(|&(known, _)| known == item) {
            seen.push((item, digest()));
        }
    }

    /// Removes and returns the items whose digest changed.
    pub(super) fn take_changed(&self, digest: impl Fn(MetaItem) -> u64) -> Vec<MetaItem> {
        let mut changed = Vec::new();
        self.seen.borrow_mut().retain(|&(item, before)| {
            let is_same = digest(item) == before;
            if !is_same {
                changed.push(item);
            }
            is_same
        });
        changed
    }

    /// Removes all items.
    pub(super) fn clear(&self) {
        self.seen.borrow_mut().clear();
    }
}

fn digest_of(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0xcbf2_9ce4_8422_2325, |digest, value| {
        (digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

pub(super) fn of_word(word: &SimWord) -> u64 {
    u64::from(word.writes())
}

pub(super) fn of_slab(slab: &SpanMeta) -> u64 {
    let SpanMeta { next, prev, local_free, carved, used, key, capacity, stride, area, .. } = slab;
    let SpanMeta { owner_tag, span_back, span_slices, class, state, zeroed, fresh, .. } = slab;
    let carved = u64::from(carved.get());
    let numbers = [used, key, capacity, stride, area].map(|number| u64::from(number.get()));
    let small = [span_back, span_slices].map(|number| u64::from(number.get()));
    let bytes = [class, state].map(|number| u64::from(number.get()));
    let flags = [zeroed, fresh].map(|flag| u64::from(flag.get()));
    let links =
        [next.get().to_bits(), prev.get().to_bits(), u64::from(local_free.get().to_bits()), owner_tag.word().into()];
    digest_of(links.into_iter().chain([carved]).chain(numbers).chain(small).chain(bytes).chain(flags))
}

pub(super) fn of_header(meta: &SuperSlabMeta<SimWord>) -> u64 {
    let SuperSlabMeta { owner, free, clean, zero, used_slices, purge_at_ns, .. } = meta;
    let SuperSlabMeta { available_next, available_prev, purge_next, purge_prev, own_next, own_prev, .. } = meta;
    let SuperSlabMeta { in_available, in_purge, collapsed, .. } = meta;
    let numbers = [used_slices, available_next, available_prev, purge_next, purge_prev, own_next, own_prev];
    let flags = [in_available, in_purge, collapsed].map(|flag| u64::from(flag.get()));
    let bits = [free, clean, zero].into_iter().flat_map(SliceBits::words);
    let rest = [owner.writes().into(), purge_at_ns.get()];
    digest_of(rest.into_iter().chain(numbers.map(|number| u64::from(number.get()))).chain(flags).chain(bits))
}

pub(super) fn of_entry(entry: &Entry) -> u64 {
    let Entry { zeroed, clean, prepared, run, bytes, since_ns, next, prev, .. } = entry;
    let flags = [zeroed, clean, prepared].map(|flag| u64::from(flag.get()));
    let numbers = [run, next, prev].map(|number| u64::from(number.get()));
    let rest =
        [entry.usage() as u64 | (entry.part() as u64) << 8 | (entry.pages() as u64) << 16, bytes.get(), since_ns.get()];
    digest_of(rest.into_iter().chain(flags).chain(numbers))
}

pub(super) fn of_pool(pool: &PoolMeta) -> u64 {
    let PoolMeta { heaps, high_water, free_hint, idle, abandoned, huge_idle, huge_idle_bytes, .. } = pool;
    let PoolMeta { moved_vmas, fallbacks_to_thp, fallbacks_to_4k, superslabs, superslabs_peak, .. } = pool;
    let PoolMeta { huge_superslabs, lost_superslabs, fallbacks_to_trim, taken_idle, taken_free, .. } = pool;
    let PoolMeta { abandoned_hint, locks_refused, huge_taken_idle, huge_taken_free, .. } = pool;
    let PoolMeta { idle_backlog, huge_idle_backlog, .. } = pool;
    let list = |list: &EntryList| [&list.head, &list.tail, &list.count].map(|number| u64::from(number.get()));
    let counts = [
        high_water,
        free_hint,
        abandoned_hint,
        moved_vmas,
        fallbacks_to_thp,
        fallbacks_to_4k,
        superslabs,
        superslabs_peak,
    ];
    let counts = counts
        .into_iter()
        .chain([huge_superslabs, lost_superslabs, fallbacks_to_trim, locks_refused])
        .map(|number| u64::from(number.get()));
    let wide = [huge_idle_bytes, taken_idle, taken_free, huge_taken_idle, huge_taken_free];
    let lists = [idle, abandoned, huge_idle].into_iter().flat_map(list);
    let backlogs = idle_backlog.values().chain(huge_idle_backlog.values());
    let rest = counts.chain(lists).chain(backlogs).chain([pool.spans().into()]);
    digest_of(heaps.iter().chain(wide).map(Field::get).chain(rest))
}

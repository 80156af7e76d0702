//! Every struct that is stored in the allocator's own memory, with its layout.
//!
//! All backends use the same types, so the layout is the same by construction. The asserts at the end of the file check
//! the sizes from which [`layout`](crate::arena::layout) computes page counts. All types are valid when zeroed.
//!
//! A [`Field`] belongs to one thread at a time. The fields of [`SuperSlabMeta`] and [`SpanMeta`] belong to the owning
//! heap. The fields of [`Entry`] and [`PoolMeta`] belong to the holder of the pool's lock. Exception: a thread that
//! holds a block of a span may read the span's `span_back`, `class` and `stride`. These do not change while the span is
//! live, except that the holder of a large block may increase its stride.

use crate::metadata::field::{Field, SharedField};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::arena::backlog::Backlog;
use crate::heap::link::Link;
use crate::heap::owner_tag::OwnerTag;
use crate::limits::HEAPS_MAX;
use crate::metadata::bits::SliceBits;

/// Identifies a span by its SuperSlab and first slice. The zero value means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlabId(u64);

impl SlabId {
    /// No slab.
    pub const NONE: SlabId = SlabId(0);

    /// The slab at `slice` of the SuperSlab with this ordinal.
    #[inline(always)]
    pub const fn new(ordinal: u32, slice: u32) -> SlabId {
        SlabId(((ordinal as u64) << 16 | slice as u64) + 1)
    }

    /// Ordinal and slice; `None` for [`SlabId::NONE`].
    #[inline(always)]
    pub const fn get(self) -> Option<(u32, u32)> {
        match self.0 {
            0 => None,
            n => Some((((n - 1) >> 16) as u32, ((n - 1) & 0xFFFF) as u32)),
        }
    }

    /// The stored form.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From the stored form.
    pub const fn from_bits(bits: u64) -> SlabId {
        SlabId(bits)
    }
}

/// State of the span that starts at a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SpanState {
    /// The slice is not the first of a span.
    None = 0,
    /// A slab whose free list was taken by its heap's bin.
    Active,
    /// A slab with free blocks, in its bin's list.
    Partial,
    /// A slab without free blocks, in no list. A large span has one block and is always full.
    Full,
}

/// Stored as the size class of a span with one large block.
pub const CLASS_LARGE: u8 = u8::MAX;

/// Metadata of one slice (64 bytes). The metadata of a span's first slice describes the span. In the span's other
/// slices only `owner_tag` and `span_back` are used.
#[repr(C, align(64))]
pub struct SpanMeta {
    /// Decides whether a free takes the fast path.
    pub owner_tag: OwnerTag,
    /// Next slab in the bin's list of partial slabs.
    pub next: Field<SlabId>,
    /// Previous slab in the bin's list of partial slabs.
    pub prev: Field<SlabId>,
    /// List of free blocks that the owner has freed or collected, without those in the bin's list.
    pub local_free: Field<Link>,
    /// Blocks carved so far. Only the owner changes the count. A thread that holds a block may read it; the value that
    /// it reads includes its block.
    pub carved: SharedField,
    /// Carved blocks that are not in `local_free`.
    pub used: Field<u32>,
    /// The key that free blocks hold after their link.
    pub key: Field<u32>,
    /// Blocks that the slab can hold; 0 for a hole in the arena.
    pub capacity: Field<u32>,
    /// Bytes from one block to the next. For a large block: its usable bytes.
    pub stride: Field<u32>,
    /// Offset of the first block in the SuperSlab.
    pub area: Field<u32>,
    /// Distance to the span's first slice, in slices. Set for every slice of a span.
    pub span_back: Field<u16>,
    /// Slices of the span.
    pub span_slices: Field<u16>,
    /// Size class, or [`CLASS_LARGE`].
    pub class: Field<u8>,
    /// State of the span.
    pub state: Field<u8>,
    /// Whether the span's memory above the carved blocks reads as zeros.
    pub zeroed: Field<bool>,
    /// Whether the bin's list holds only blocks of the last carve that were never allocated.
    pub fresh: Field<bool>,
}

impl SpanMeta {
    /// A zeroed value, for backends without raw memory.
    pub fn new() -> SpanMeta {
        SpanMeta {
            owner_tag: OwnerTag::none(),
            next: Field::new(SlabId::NONE),
            prev: Field::new(SlabId::NONE),
            local_free: Field::new(Link::NONE),
            carved: SharedField::new(0),
            used: Field::new(0),
            key: Field::new(0),
            capacity: Field::new(0),
            stride: Field::new(0),
            area: Field::new(0),
            span_back: Field::new(0),
            span_slices: Field::new(0),
            class: Field::new(0),
            state: Field::new(SpanState::None as u8),
            zeroed: Field::new(false),
            fresh: Field::new(false),
        }
    }

    /// Zeroes all fields.
    pub fn clear(&self) {
        let SpanMeta { next, prev, local_free, carved, used, key, capacity, stride, area, .. } = self;
        let SpanMeta { owner_tag, span_back, span_slices, class, state, zeroed, fresh, .. } = self;
        owner_tag.clear();
        [next, prev].into_iter().for_each(|id| id.set(SlabId::NONE));
        local_free.set(Link::NONE);
        carved.set(0);
        [used, key, capacity, stride, area].into_iter().for_each(|number| number.set(0));
        [span_back, span_slices].into_iter().for_each(|number| number.set(0));
        [class, state].into_iter().for_each(|number| number.set(0));
        [zeroed, fresh].into_iter().for_each(|flag| flag.set(false));
    }

    /// Whether all fields are zero.
    pub fn is_clear(&self) -> bool {
        let SpanMeta { next, prev, local_free, carved, used, key, capacity, stride, area, .. } = self;
        let SpanMeta { owner_tag, span_back, span_slices, class, state, zeroed, fresh, .. } = self;
        owner_tag.word() == 0
            && [next, prev].iter().all(|id| id.get() == SlabId::NONE)
            && local_free.get() == Link::NONE
            && carved.get() == 0
            && [used, key, capacity, stride, area].iter().all(|number| number.get() == 0)
            && [span_back, span_slices].iter().all(|number| number.get() == 0)
            && [class, state].iter().all(|number| number.get() == 0)
            && [zeroed, fresh].iter().all(|flag| !flag.get())
    }

    /// Whether the span holds one large block. Any thread that holds a block of the span may call it.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.class.get() == CLASS_LARGE
    }

    /// Whether the span represents a hole in the arena. Such a span has one block, which is never freed.
    pub fn is_lost(&self) -> bool {
        self.is_large() && self.capacity.get() == 0
    }

    /// The state, typed.
    #[inline]
    pub fn span_state(&self) -> SpanState {
        match self.state.get() {
            1 => SpanState::Active,
            2 => SpanState::Partial,
            3 => SpanState::Full,
            _ => SpanState::None,
        }
    }

    /// Sets the state of the span that starts at the slice.
    #[inline]
    pub fn set_state(&self, state: SpanState) {
        self.state.set(state as u8);
        self.owner_tag.set_full(state == SpanState::Full);
    }
}

/// Metadata of a SuperSlab in use. The owner word has its own cache line, because every slow free reads it.
#[repr(C, align(64))]
pub struct SuperSlabMeta<W> {
    /// Owning heap + 1; 0 while abandoned.
    pub owner: W,
    _line: [u64; 7],
    /// Slices that no span holds.
    pub free: SliceBits,
    /// Free slices that were purged since their last use, or never used.
    pub clean: SliceBits,
    /// Free slices that read as zeros.
    pub zero: SliceBits,
    /// Slices that spans hold.
    pub used_slices: Field<u32>,
    /// Next SuperSlab (ordinal + 1) in the owner's list of SuperSlabs with free slices, which is sorted by ordinal.
    pub available_next: Field<u32>,
    /// Previous SuperSlab (ordinal + 1) in the same list.
    pub available_prev: Field<u32>,
    /// Next SuperSlab (ordinal + 1) in the owner's queue of SuperSlabs with spans to purge.
    pub purge_next: Field<u32>,
    /// Previous SuperSlab (ordinal + 1) in the purge queue.
    pub purge_prev: Field<u32>,
    /// Next SuperSlab (ordinal + 1) in the owner's list of all its SuperSlabs.
    pub own_next: Field<u32>,
    /// Previous SuperSlab (ordinal + 1) in the list of all.
    pub own_prev: Field<u32>,
    /// Whether the SuperSlab is in the owner's list of SuperSlabs with free slices.
    pub in_available: Field<bool>,
    /// Whether the SuperSlab is in the owner's purge queue.
    pub in_purge: Field<bool>,
    /// Whether the SuperSlab was collapsed into huge pages since its memory was last purged.
    pub collapsed: Field<bool>,
    /// Time at which the free spans are due to be purged, ns.
    pub purge_at_ns: Field<u64>,
}

impl<W> SuperSlabMeta<W> {
    /// A zeroed value, for backends without raw memory.
    pub fn new(owner: W) -> SuperSlabMeta<W> {
        SuperSlabMeta {
            owner,
            _line: [0; 7],
            free: SliceBits::new(),
            clean: SliceBits::new(),
            zero: SliceBits::new(),
            used_slices: Field::new(0),
            available_next: Field::new(0),
            available_prev: Field::new(0),
            purge_next: Field::new(0),
            purge_prev: Field::new(0),
            own_next: Field::new(0),
            own_prev: Field::new(0),
            in_available: Field::new(false),
            in_purge: Field::new(false),
            collapsed: Field::new(false),
            purge_at_ns: Field::new(0),
        }
    }
}

/// How an ordinal of the arena is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// Not in use.
    Free = 0,
    /// A SuperSlab of slabs and large spans, owned by a heap.
    Slabs,
    /// As [`Slabs`](Use::Slabs), without an owner.
    Abandoned,
    /// An empty SuperSlab that is cached for reuse.
    Idle,
    /// A prewarmed SuperSlab that was never used. It stays present until its first use.
    Warm,
    /// The first SuperSlab of a huge block.
    Huge,
    /// A SuperSlab of a huge run, but not its first. The run is in use or cached.
    HugeTail,
    /// The first SuperSlab of a freed huge run that is cached for reuse.
    HugeIdle,
    /// A hole in the arena: it was unmapped, and the kernel refused to map it again. Never used again.
    Lost,
}

/// A SuperSlab's place in its mapping, if SuperSlabs have separate mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// The SuperSlab has no mapping.
    Unmapped = 0,
    /// The SuperSlab is the first of its mapping. It may or may not follow the previous SuperSlab in memory.
    First,
    /// The SuperSlab directly follows the previous one, in the same mapping.
    Later,
}

/// The page size last requested from the kernel, if the policy requests huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pages {
    /// Huge pages.
    Huge = 0,
    /// Small pages only.
    Small,
}

/// Bits of [`Entry`]'s first byte: a [`Use`], a [`Part`] and a [`Pages`].
const USE_BITS: u8 = 0x0F;
const PART_SHIFT: u32 = 4;
const PART_BITS: u8 = 0x30;
const SMALL_BIT: u8 = 0x40;

/// One entry of the arena table (32 bytes, out of band).
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    /// A [`Use`], a [`Part`] and a [`Pages`]. Written under the lock; a thread that holds a block may read it without
    /// the lock.
    usage: AtomicU8,
    /// Whether the SuperSlab's memory reads as zeros.
    pub zeroed: Field<bool>,
    /// Whether the SuperSlab was purged since its last use, or was never used.
    pub clean: Field<bool>,
    /// Whether the SuperSlab's pages were mapped or prefaulted as the policy requires. False before the first use.
    pub prepared: Field<bool>,
    /// SuperSlabs in the huge run that starts here.
    pub run: Field<u32>,
    /// Usable bytes of the huge block that starts here; 0 for a heap's SuperSlab.
    pub bytes: Field<u64>,
    /// Time at which the SuperSlab or huge run became idle, ns.
    pub since_ns: Field<u64>,
    /// Next entry (ordinal + 1) in the list for its [`Use`].
    pub next: Field<u32>,
    /// Previous entry (ordinal + 1) in the same list.
    pub prev: Field<u32>,
}

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: u64 = core::mem::size_of::<Entry>() as u64;

impl Default for SpanMeta {
    fn default() -> SpanMeta {
        SpanMeta::new()
    }
}

impl Entry {
    /// The use, typed.
    #[inline]
    pub fn usage(&self) -> Use {
        match self.usage.load(Ordering::Relaxed) & USE_BITS {
            1 => Use::Slabs,
            2 => Use::Abandoned,
            3 => Use::Idle,
            4 => Use::Warm,
            5 => Use::Huge,
            6 => Use::HugeTail,
            7 => Use::HugeIdle,
            8 => Use::Lost,
            _ => Use::Free,
        }
    }

    /// Sets the use.
    #[inline]
    pub fn set_usage(&self, usage: Use) {
        self.set_byte(self.usage.load(Ordering::Relaxed) & !USE_BITS | usage as u8);
    }

    /// Resets the entry to a free SuperSlab without its own mapping and with the arena's page size. Does not read the
    /// entry: this may be the first access.
    #[inline]
    pub fn reset(&self) {
        self.usage.store(Use::Free as u8, Ordering::Relaxed);
    }

    /// The place in the mapping, typed.
    #[inline]
    pub fn part(&self) -> Part {
        match (self.usage.load(Ordering::Relaxed) & PART_BITS) >> PART_SHIFT {
            1 => Part::First,
            2 => Part::Later,
            _ => Part::Unmapped,
        }
    }

    /// Sets the place in the mapping.
    #[inline]
    pub fn set_part(&self, part: Part) {
        self.set_byte(self.usage.load(Ordering::Relaxed) & !PART_BITS | (part as u8) << PART_SHIFT);
    }

    /// The page size last requested.
    pub fn pages(&self) -> Pages {
        if self.usage.load(Ordering::Relaxed) & SMALL_BIT == 0 { Pages::Huge } else { Pages::Small }
    }

    /// Sets the page size last requested.
    pub fn set_pages(&self, pages: Pages) {
        let others = self.usage.load(Ordering::Relaxed) & !SMALL_BIT;
        self.set_byte(others | if pages == Pages::Small { SMALL_BIT } else { 0 });
    }

    /// As [`Field::set`], for the byte that may be read without the lock.
    fn set_byte(&self, byte: u8) {
        if self.usage.load(Ordering::Relaxed) != byte {
            self.usage.store(byte, Ordering::Relaxed);
        }
    }
}

/// A list of arena entries, the most recent at the head.
#[repr(C)]
#[derive(Default)]
pub struct EntryList {
    /// First (ordinal + 1).
    pub head: Field<u32>,
    /// Last (ordinal + 1).
    pub tail: Field<u32>,
    /// Length.
    pub count: Field<u32>,
}

/// The pool's control block (one page, out of band).
#[repr(C)]
pub struct PoolMeta {
    /// Thread heap slots in use, one bit each.
    pub heaps: [Field<u64>; HEAPS_MAX as usize / 64],
    /// Ordinals below this were used at least once, so their entries are initialised.
    pub high_water: Field<u32>,
    /// No ordinal below this is free.
    pub free_hint: Field<u32>,
    /// Empty SuperSlabs.
    pub idle: EntryList,
    /// SuperSlabs without an owner.
    pub abandoned: EntryList,
    /// No ordinal below this is abandoned.
    pub abandoned_hint: Field<u32>,
    /// Freed huge runs.
    pub huge_idle: EntryList,
    /// Usable bytes in `huge_idle`.
    pub huge_idle_bytes: Field<u64>,
    /// When the SuperSlabs in `idle` became empty, if a decay curve purges them.
    pub idle_backlog: Backlog,
    /// When the runs in `huge_idle` were freed, likewise.
    pub huge_idle_backlog: Backlog,
    /// VMAs that moved huge blocks may have added.
    pub moved_vmas: Field<u32>,
    /// SuperSlabs that fell back from hugetlb to transparent huge pages.
    pub fallbacks_to_thp: Field<u32>,
    /// SuperSlabs that fell back from hugetlb to 4 KiB pages.
    pub fallbacks_to_4k: Field<u32>,
    /// SuperSlabs in use by heaps, abandoned ones included.
    pub superslabs: Field<u32>,
    /// Peak of `superslabs` plus `huge_superslabs`.
    pub superslabs_peak: Field<u32>,
    /// SuperSlabs that huge blocks hold.
    pub huge_superslabs: Field<u32>,
    /// SuperSlabs in holes of the arena: see [`Use::Lost`].
    pub lost_superslabs: Field<u32>,
    /// Mappings that the kernel did not align, so that trimmed mappings replaced them.
    pub fallbacks_to_trim: Field<u32>,
    /// Number of times the kernel refused to lock newly taken SuperSlabs.
    pub locks_refused: Field<u32>,
    /// SuperSlabs that heaps took from `idle` or split off a run in `huge_idle`.
    pub taken_idle: Field<u64>,
    /// SuperSlabs that heaps took from the free SuperSlabs.
    pub taken_free: Field<u64>,
    /// Huge blocks that were taken from `huge_idle` or `idle`.
    pub huge_taken_idle: Field<u64>,
    /// Huge blocks that were taken from the free SuperSlabs.
    pub huge_taken_free: Field<u64>,
    /// Spans created. The only field that is changed without the lock.
    spans: AtomicU32,
}

impl PoolMeta {
    /// A zeroed value, for backends without raw memory.
    pub fn new() -> PoolMeta {
        PoolMeta {
            heaps: [const { Field::new(0) }; HEAPS_MAX as usize / 64],
            high_water: Field::new(0),
            free_hint: Field::new(0),
            idle: EntryList::default(),
            abandoned: EntryList::default(),
            abandoned_hint: Field::new(0),
            huge_idle: EntryList::default(),
            huge_idle_bytes: Field::new(0),
            idle_backlog: Backlog::new(),
            huge_idle_backlog: Backlog::new(),
            moved_vmas: Field::new(0),
            fallbacks_to_thp: Field::new(0),
            fallbacks_to_4k: Field::new(0),
            superslabs: Field::new(0),
            superslabs_peak: Field::new(0),
            huge_superslabs: Field::new(0),
            lost_superslabs: Field::new(0),
            fallbacks_to_trim: Field::new(0),
            locks_refused: Field::new(0),
            taken_idle: Field::new(0),
            taken_free: Field::new(0),
            huge_taken_idle: Field::new(0),
            huge_taken_free: Field::new(0),
            spans: AtomicU32::new(0),
        }
    }

    /// Spans counted so far.
    pub fn spans(&self) -> u32 {
        self.spans.load(Ordering::Relaxed)
    }

    /// Counts a span; returns the previous count.
    pub(crate) fn add_span_stats(&self) -> u32 {
        self.spans.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for PoolMeta {
    fn default() -> PoolMeta {
        PoolMeta::new()
    }
}

const _: () = {
    assert!(core::mem::size_of::<SpanMeta>() == 64, "the metadata of a slice fills one cache line");
    assert!(core::mem::size_of::<SuperSlabMeta<u64>>() == 320, "layout.rs computes metadata pages from this size");
    assert!(core::mem::size_of::<Entry>() == 32, "layout.rs computes table pages from this size");
    assert!(core::mem::size_of::<PoolMeta>() <= 4096, "the control block is one page");
};

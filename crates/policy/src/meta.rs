//! Every struct that lives in the allocator's own memory, with its layout.
//!
//! The same types are used in both worlds, so the layout is equal by construction; the asserts below keep the
//! byte budget that [`layout`](crate::layout) counts pages with. All are valid when zeroed.
//!
//! [`Field`]s belong to one thread at a time: those of [`SuperSlabMeta`] and [`SlabMeta`] to the owning heap
//! (`span_back`, `class` and `stride` of a live span may be read by anyone who holds a block of it, since they do not
//! change while it is live, but for a large block's stride, which only its holder makes grow), those of [`Entry`] and [`PoolMeta`] to the holder of the pool's lock.

use crate::field::{Field, SharedField};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::bits::UnitBits;
use crate::home::Home;
use crate::limits::HEAPS_MAX;
use crate::link::Link;

/// Names a span's first unit across SuperSlabs. The zero value means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SlabId(u64);

impl SlabId {
    /// No slab.
    pub const NONE: SlabId = SlabId(0);

    /// The slab at `unit` of the SuperSlab with this ordinal.
    #[inline(always)]
    pub const fn new(ordinal: u32, unit: u32) -> SlabId {
        SlabId(((ordinal as u64) << 16 | unit as u64) + 1)
    }

    /// Ordinal and unit, unless it is none.
    #[inline(always)]
    pub const fn get(self) -> Option<(u32, u32)> {
        match self.0 {
            0 => None,
            n => Some((((n - 1) >> 16) as u32, ((n - 1) & 0xFFFF) as u32)),
        }
    }

    /// Stored form.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From the stored form.
    pub const fn from_bits(bits: u64) -> SlabId {
        SlabId(bits)
    }
}

/// What the span that a unit begins is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SpanState {
    /// Not a span's first unit.
    None = 0,
    /// A slab whose free list its heap's bin has taken.
    Active,
    /// A slab with free blocks, in its bin's list.
    Partial,
    /// A slab without free blocks, in no list. A large block is a slab of one block, and stays full.
    Full,
}

/// In place of a size class: the span holds one large block.
pub const CLASS_LARGE: u8 = u8::MAX;

/// Metadata of one unit (64 bytes). Only that of a span's first unit describes the span.
#[repr(C, align(64))]
pub struct SlabMeta {
    /// Who frees into it quickly.
    pub home: Home,
    /// Neighbours in the bin's list of partial slabs.
    pub next: Field<SlabId>,
    /// See `next`.
    pub prev: Field<SlabId>,
    /// Blocks the owner freed while the slab was active or since it left.
    pub local_free: Field<Link>,
    /// Blocks carved so far. The owner changes it; whoever holds a block may read it, and finds that block counted.
    pub carved: SharedField,
    /// Carved blocks that are not in `local_free`.
    pub used: Field<u32>,
    /// What a free block of it has behind its link.
    pub key: Field<u32>,
    /// Blocks the slab can hold; 0 in a hole.
    pub capacity: Field<u32>,
    /// Bytes from one block to the next; of a large block its usable bytes.
    pub stride: Field<u32>,
    /// Offset of the first block in the SuperSlab.
    pub area: Field<u32>,
    /// Units back to the span's first unit (set for every unit of a span).
    pub span_back: Field<u16>,
    /// Units of the span.
    pub span_units: Field<u16>,
    /// Size class, or [`CLASS_LARGE`].
    pub class: Field<u8>,
    /// State of the span.
    pub state: Field<u8>,
    /// Whether the span's memory above the carved blocks reads as zeros.
    pub zeroed: Field<bool>,
    /// Whether the bin's list holds only blocks of the last carve, none of them ever handed out.
    pub fresh: Field<bool>,
}

impl SlabMeta {
    /// Zeroed, as a world that has no raw memory makes it.
    pub fn new() -> SlabMeta {
        SlabMeta {
            home: Home::none(),
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
            span_units: Field::new(0),
            class: Field::new(0),
            state: Field::new(SpanState::None as u8),
            zeroed: Field::new(false),
            fresh: Field::new(false),
        }
    }

    /// Makes it as [`SlabMeta::new`] does: what zeroing its memory does.
    pub fn clear(&self) {
        let SlabMeta { next, prev, local_free, carved, used, key, capacity, stride, area, .. } = self;
        let SlabMeta { home, span_back, span_units, class, state, zeroed, fresh, .. } = self;
        home.clear();
        [next, prev].into_iter().for_each(|id| id.set(SlabId::NONE));
        local_free.set(Link::NONE);
        carved.set(0);
        [used, key, capacity, stride, area].into_iter().for_each(|number| number.set(0));
        [span_back, span_units].into_iter().for_each(|number| number.set(0));
        [class, state].into_iter().for_each(|number| number.set(0));
        [zeroed, fresh].into_iter().for_each(|flag| flag.set(false));
    }

    /// Whether its memory is all zeros.
    pub fn is_clear(&self) -> bool {
        let SlabMeta { next, prev, local_free, carved, used, key, capacity, stride, area, .. } = self;
        let SlabMeta { home, span_back, span_units, class, state, zeroed, fresh, .. } = self;
        home.word() == 0
            && [next, prev].iter().all(|id| id.get() == SlabId::NONE)
            && local_free.get() == Link::NONE
            && carved.get() == 0
            && [used, key, capacity, stride, area].iter().all(|number| number.get() == 0)
            && [span_back, span_units].iter().all(|number| number.get() == 0)
            && [class, state].iter().all(|number| number.get() == 0)
            && [zeroed, fresh].iter().all(|flag| !flag.get())
    }

    /// Whether the span holds one large block. Anyone who holds a block of the span may ask.
    #[inline(always)]
    pub fn is_large(&self) -> bool {
        self.class.get() == CLASS_LARGE
    }

    /// Whether nobody holds the span's one block, since it is a hole in the arena.
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

    /// Sets the state of the span that the unit begins.
    #[inline]
    pub fn set_state(&self, state: SpanState) {
        self.state.set(state as u8);
        self.home.set_full(state == SpanState::Full);
    }
}

/// Metadata of a SuperSlab in use. The owner word stands on a cache line of its own, since every free reads it.
#[repr(C, align(64))]
pub struct SuperSlabMeta<W> {
    /// Owning heap + 1; 0 while abandoned.
    pub owner: W,
    _line: [u64; 7],
    /// Units no span holds.
    pub free: UnitBits,
    /// Free units that were purged since their last use, or never used.
    pub clean: UnitBits,
    /// Free units that read as zeros.
    pub zero: UnitBits,
    /// Units that spans hold.
    pub used_units: Field<u32>,
    /// Neighbours (ordinal + 1) in the owner's list of SuperSlabs that have free units, by ordinal.
    pub room_next: Field<u32>,
    /// See `room_next`.
    pub room_prev: Field<u32>,
    /// Neighbours (ordinal + 1) in the owner's queue of SuperSlabs with spans to purge.
    pub purge_next: Field<u32>,
    /// See `purge_next`.
    pub purge_prev: Field<u32>,
    /// Neighbours (ordinal + 1) in the owner's list of all its SuperSlabs.
    pub own_next: Field<u32>,
    /// See `own_next`.
    pub own_prev: Field<u32>,
    /// Whether it stands in the room list, and in the purge queue.
    pub in_room: Field<bool>,
    /// See `in_room`.
    pub in_purge: Field<bool>,
    /// Whether it was collapsed into huge pages since its memory was last purged.
    pub collapsed: Field<bool>,
    /// When its free spans are due to be purged, ns.
    pub purge_at_ns: Field<u64>,
}

impl<W> SuperSlabMeta<W> {
    /// Zeroed, as a world that has no raw memory makes it.
    pub fn new(owner: W) -> SuperSlabMeta<W> {
        SuperSlabMeta {
            owner,
            _line: [0; 7],
            free: UnitBits::new(),
            clean: UnitBits::new(),
            zero: UnitBits::new(),
            used_units: Field::new(0),
            room_next: Field::new(0),
            room_prev: Field::new(0),
            purge_next: Field::new(0),
            purge_prev: Field::new(0),
            own_next: Field::new(0),
            own_prev: Field::new(0),
            in_room: Field::new(false),
            in_purge: Field::new(false),
            collapsed: Field::new(false),
            purge_at_ns: Field::new(0),
        }
    }
}

/// What an ordinal of the arena is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// Nothing.
    Free = 0,
    /// A SuperSlab of slabs and large spans, owned by a heap.
    Slabs,
    /// The same, its owner gone.
    Abandoned,
    /// An empty SuperSlab kept for reuse.
    Idle,
    /// A prewarmed SuperSlab that was never used: it stays present until it is.
    Warm,
    /// The first SuperSlab of a huge block.
    Huge,
    /// A further SuperSlab of a huge run, in use or cached.
    HugeTail,
    /// The first SuperSlab of a freed huge run kept for reuse.
    HugeIdle,
    /// A hole in the arena: given back to the kernel, which then refused to map it again. Never used again.
    Lost,
}

/// How the memory of a SuperSlab is mapped where SuperSlabs have maps of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Not at all.
    Unmapped = 0,
    /// Nothing of the same map is known to lie before it.
    First,
    /// On the map of the SuperSlab before it, right behind that.
    Later,
}

/// Which pages the kernel was last asked for, where huge ones are asked for at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pages {
    /// Huge ones.
    Huge = 0,
    /// Small ones alone.
    Small,
}

/// The bits of [`Entry`]'s first byte that are a [`Use`], a [`Part`] and a [`Pages`].
const USE_BITS: u8 = 0x0F;
const PART_SHIFT: u32 = 4;
const PART_BITS: u8 = 0x30;
const SMALL_BIT: u8 = 0x40;

/// One entry of the arena table (32 bytes, out of band).
#[repr(C)]
#[derive(Default)]
pub struct Entry {
    /// A [`Use`], above it a [`Part`], and a [`Pages`]. Changed under the lock; who holds a block may read it without.
    usage: AtomicU8,
    /// Its memory reads as zeros.
    pub zeroed: Field<bool>,
    /// Purged since its last use, or never used.
    pub clean: Field<bool>,
    /// Its pages were mapped or prefaulted as the policy asks; false before the first use.
    pub prepared: Field<bool>,
    /// SuperSlabs in the huge run that starts here.
    pub run: Field<u32>,
    /// Usable bytes of the huge block that starts here; 0 while a heap's SuperSlab does.
    pub bytes: Field<u64>,
    /// When it became idle, ns.
    pub since_ns: Field<u64>,
    /// Neighbours (ordinal + 1) in the list of its use.
    pub next: Field<u32>,
    /// See `next`.
    pub prev: Field<u32>,
}

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: u64 = core::mem::size_of::<Entry>() as u64;

impl Default for SlabMeta {
    fn default() -> SlabMeta {
        SlabMeta::new()
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

    /// Makes it that of a SuperSlab that is free, has no map of its own, and gets the arena's pages. Reads nothing: it may be the first access.
    #[inline]
    pub fn reset(&self) {
        self.usage.store(Use::Free as u8, Ordering::Relaxed);
    }

    /// The place in a map, typed.
    #[inline]
    pub fn part(&self) -> Part {
        match (self.usage.load(Ordering::Relaxed) & PART_BITS) >> PART_SHIFT {
            1 => Part::First,
            2 => Part::Later,
            _ => Part::Unmapped,
        }
    }

    /// Sets the place in a map.
    #[inline]
    pub fn set_part(&self, part: Part) {
        self.set_byte(self.usage.load(Ordering::Relaxed) & !PART_BITS | (part as u8) << PART_SHIFT);
    }

    /// The pages last asked for.
    pub fn pages(&self) -> Pages {
        if self.usage.load(Ordering::Relaxed) & SMALL_BIT == 0 { Pages::Huge } else { Pages::Small }
    }

    /// Sets the pages last asked for.
    pub fn set_pages(&self, pages: Pages) {
        let others = self.usage.load(Ordering::Relaxed) & !SMALL_BIT;
        self.set_byte(others | if pages == Pages::Small { SMALL_BIT } else { 0 });
    }

    /// As [`Field::set`], for the one byte that is read without the lock.
    fn set_byte(&self, byte: u8) {
        if self.usage.load(Ordering::Relaxed) != byte {
            self.usage.store(byte, Ordering::Relaxed);
        }
    }
}

/// A list of arena entries: most recent at the head.
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
    /// Ordinals below this were used at least once: their entries are written.
    pub high_water: Field<u32>,
    /// No ordinal below this is free.
    pub free_hint: Field<u32>,
    /// Empty SuperSlabs.
    pub idle: EntryList,
    /// SuperSlabs whose owner is gone.
    pub abandoned: EntryList,
    /// No ordinal below this is abandoned.
    pub abandoned_hint: Field<u32>,
    /// Freed huge runs.
    pub huge_idle: EntryList,
    /// Usable bytes in `huge_idle`.
    pub huge_idle_bytes: Field<u64>,
    /// VMAs that moved huge blocks may have added.
    pub moved_vmas: Field<u32>,
    /// SuperSlabs of ours that hugetlb refused: the step taken instead was thp, or plain.
    pub fell_back_thp: Field<u32>,
    /// See `fell_back_thp`.
    pub fell_back_plain: Field<u32>,
    /// SuperSlabs in use by heaps, abandoned ones included.
    pub superslabs: Field<u32>,
    /// Highest value of `superslabs` plus huge runs' SuperSlabs.
    pub superslabs_peak: Field<u32>,
    /// SuperSlabs that huge blocks hold.
    pub huge_superslabs: Field<u32>,
    /// SuperSlabs in holes of the arena: see [`Use::Lost`].
    pub lost_superslabs: Field<u32>,
    /// Maps that the kernel did not align, and that were mapped again to be trimmed.
    pub fell_back_trim: Field<u32>,
    /// Times that SuperSlabs were taken whose memory the kernel refused to lock.
    pub locks_refused: Field<u32>,
    /// SuperSlabs that heaps took out of `idle` or cut off a run in `huge_idle`, and where none was there.
    pub taken_idle: Field<u64>,
    /// See `taken_idle`.
    pub taken_free: Field<u64>,
    /// Huge blocks that were taken out of `huge_idle` or `idle`, and where none fitted.
    pub huge_taken_idle: Field<u64>,
    /// See `huge_taken_idle`.
    pub huge_taken_free: Field<u64>,
    /// Spans that were made. The one field that is changed without the lock.
    spans: AtomicU32,
}

impl PoolMeta {
    /// Zeroed, as a world that has no raw memory makes it.
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
            moved_vmas: Field::new(0),
            fell_back_thp: Field::new(0),
            fell_back_plain: Field::new(0),
            superslabs: Field::new(0),
            superslabs_peak: Field::new(0),
            huge_superslabs: Field::new(0),
            lost_superslabs: Field::new(0),
            fell_back_trim: Field::new(0),
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

    /// Counts a span; how many there were before it.
    pub(crate) fn count_span(&self) -> u32 {
        self.spans.fetch_add(1, Ordering::Relaxed)
    }
}

impl Default for PoolMeta {
    fn default() -> PoolMeta {
        PoolMeta::new()
    }
}

const _: () = {
    assert!(core::mem::size_of::<SlabMeta>() == 64, "a slab's owner fields fill one cache line");
    assert!(core::mem::size_of::<SuperSlabMeta<u64>>() == 320, "layout.rs counts metadata pages with it");
    assert!(core::mem::size_of::<Entry>() == 32, "layout.rs counts table pages with it");
    assert!(core::mem::size_of::<PoolMeta>() <= 4096, "the control block is one page");
};

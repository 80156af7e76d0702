//! The address layout: the allocator's tables, then the arena, in one reservation.
//!
//! ```text
//! 0          control page
//! 4K         thread heaps, HEAP_BYTES each
//! ...        front caches of thread heaps, if the policy has them
//! ...        arena table, one Entry per ordinal
//! ...        sidecar metadata, if the policy has it
//! arena      SuperSlabs, by ordinal
//! ```
//! Every part starts on a page boundary. The arena starts at a multiple of the huge page size and of the SuperSlab
//! size. One reservation makes the layout deterministic: page numbers relative to its base are the same in every
//! backend.

use crate::geometry::Geometry;
use crate::limits::{ALIGN_BYTES_MAX, HUGE_PAGE_BYTES, PAGE_BYTES};
pub use crate::limits::{HEAP_BYTES, HEAPS_MAX};
use crate::metadata::meta::{ENTRY_BYTES, SpanMeta, SuperSlabMeta};
use crate::policy::vocabulary::{Align, MetaPlace};

/// The preferred address of a reservation: a multiple of every alignment, far from stacks and shared objects.
pub const BASE_ADDRESS: u64 = 0x2000_0000_0000;

/// Bytes of an entry of a front cache.
pub const FRONT_ENTRY_BYTES: u64 = 8;

/// Thread heaps in a [compact](Layout::compact) layout.
pub const COMPACT_HEAPS: u32 = 64;

fn base_align(geometry: &impl Geometry) -> u64 {
    HUGE_PAGE_BYTES.max(ALIGN_BYTES_MAX).max(1 << geometry.superslab_shift())
}

/// The reservation's parts, as byte offsets from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Start of the thread heaps.
    pub heaps: u64,
    /// Start of the front caches (empty if the policy has none).
    pub front_caches: u64,
    /// Bytes of one heap's front cache, a multiple of the page.
    pub front_cache_bytes: u64,
    /// Start of the arena table.
    pub table: u64,
    /// Start of the sidecar metadata (empty if metadata is in-band).
    pub sidecar: u64,
    /// Start of the arena.
    pub arena: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// How SuperSlabs are mapped. Unless this is [`Align::Arena`], the arena is not mapped: it only gives SuperSlabs
    /// page numbers and an order.
    pub align: Align,
    /// Alignment of the arena's address; in a layout that is not compact, also of the base.
    pub base_align: u64,
    /// Number of thread heap slots.
    pub heaps_max: u32,
    /// log2 of the SuperSlab's bytes.
    pub superslab_shift: u32,
    /// Bytes of a SuperSlab's metadata, a multiple of the page.
    pub meta_bytes: u32,
    /// Offset of the remote words from the start of a SuperSlab's metadata.
    pub remote_words: u32,
    /// Offset of the message links from the start of a SuperSlab's metadata.
    pub message_links: u32,
    /// Where metadata is stored.
    pub meta_place: MetaPlace,
}

impl Layout {
    /// Lays out an arena of `arena_bytes` (rounded up to whole SuperSlabs and huge pages).
    pub fn new(geometry: &impl Geometry, arena_bytes: u64) -> Layout {
        let arena_align = base_align(geometry);
        Layout::divided(geometry, arena_bytes.max(1).next_multiple_of(arena_align), arena_align, HEAPS_MAX)
    }

    /// A layout that needs little address space: no gap before the arena, [`COMPACT_HEAPS`] thread heaps, and an arena
    /// rounded up to whole SuperSlabs and 2 MiB huge pages.
    pub fn compact(geometry: &impl Geometry, arena_bytes: u64) -> Layout {
        let whole = HUGE_PAGE_BYTES.max(1 << geometry.superslab_shift());
        Layout::divided(geometry, arena_bytes.max(1).next_multiple_of(whole), PAGE_BYTES, COMPACT_HEAPS)
    }

    fn divided(geometry: &impl Geometry, arena_bytes: u64, arena_align: u64, heaps_max: u32) -> Layout {
        let ordinals = arena_bytes >> geometry.superslab_shift();
        let meta = MetaBytes::of(geometry);
        let meta_place = geometry.meta_place();
        let heaps = PAGE_BYTES;
        let front_caches = heaps + HEAP_BYTES * u64::from(heaps_max);
        let front_entries = geometry.classes().count() as u64 * u64::from(geometry.front_cache());
        let front_cache_bytes = (front_entries * FRONT_ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        let table = front_caches + front_cache_bytes * u64::from(heaps_max);
        let sidecar = (table + ordinals * ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        let sidecar_bytes = match meta_place {
            MetaPlace::InBand => 0,
            MetaPlace::Sidecar => ordinals * u64::from(meta.total),
        };
        Layout {
            heaps,
            front_caches,
            front_cache_bytes,
            table,
            sidecar,
            arena: (sidecar + sidecar_bytes).next_multiple_of(arena_align),
            arena_bytes,
            align: Align::Arena,
            base_align: base_align(geometry),
            heaps_max,
            superslab_shift: geometry.superslab_shift(),
            meta_bytes: meta.total,
            remote_words: meta.remote_words,
            message_links: meta.message_links,
            meta_place,
        }
    }

    /// The same layout with another way to map SuperSlabs.
    pub fn with_align(self, align: Align) -> Layout {
        Layout { align, ..self }
    }

    /// Bytes of the whole reservation.
    pub fn bytes(&self) -> u64 {
        match self.align {
            Align::Arena => self.named_bytes(),
            Align::Trim | Align::Kernel => self.arena,
        }
    }

    /// Bytes that have page numbers: the reservation and the arena, even if the arena is not part of the reservation.
    pub fn named_bytes(&self) -> u64 {
        self.arena + self.arena_bytes
    }

    /// SuperSlabs in the arena.
    pub fn ordinals(&self) -> u32 {
        (self.arena_bytes >> self.superslab_shift) as u32
    }

    /// Offset of a SuperSlab's metadata from the base of the reservation.
    #[inline]
    pub fn meta_of(&self, ordinal: u32) -> u64 {
        match self.meta_place {
            MetaPlace::InBand => self.superslab_of(ordinal),
            MetaPlace::Sidecar => self.sidecar + u64::from(ordinal) * u64::from(self.meta_bytes),
        }
    }

    /// Offset of a SuperSlab from the base of the reservation.
    #[inline]
    pub fn superslab_of(&self, ordinal: u32) -> u64 {
        self.arena + (u64::from(ordinal) << self.superslab_shift)
    }

    /// Offset of a thread heap's slot.
    pub fn heap_of(&self, heap: u32) -> u64 {
        self.heaps + u64::from(heap) * HEAP_BYTES
    }

    /// Offset of an entry of a heap's front cache.
    #[inline]
    pub fn front_entry_of(&self, heap: u32, index: u32) -> u64 {
        self.front_caches + u64::from(heap) * self.front_cache_bytes + u64::from(index) * FRONT_ENTRY_BYTES
    }

    /// Offset of an arena table entry.
    pub fn entry_of(&self, ordinal: u32) -> u64 {
        self.table + u64::from(ordinal) * ENTRY_BYTES
    }
}

/// Sizes in a SuperSlab's metadata: header, span metadata, then the words that other threads write, on separate cache
/// lines.
struct MetaBytes {
    remote_words: u32,
    message_links: u32,
    total: u32,
}

impl MetaBytes {
    fn of(geometry: &impl Geometry) -> MetaBytes {
        let slices = geometry.slices();
        let slabs = size_of::<SuperSlabMeta<u64>>() as u32;
        let remote_words = slabs + slices * size_of::<SpanMeta>() as u32;
        let message_links = remote_words + slices * 8;
        MetaBytes {
            remote_words,
            message_links,
            total: (message_links + slices * 8).next_multiple_of(PAGE_BYTES as u32),
        }
    }
}

/// Offset of the span metadata from the start of a SuperSlab's metadata.
pub const SPANS_AT: u32 = size_of::<SuperSlabMeta<u64>>() as u32;

/// Bytes at the start of a SuperSlab that no block can use.
#[inline(always)]
pub fn reserved_bytes(geometry: &impl Geometry) -> u32 {
    match geometry.meta_place() {
        MetaPlace::InBand => MetaBytes::of(geometry).total,
        MetaPlace::Sidecar => 0,
    }
}

/// Slices of a slab with blocks of `stride` bytes: the fewest that waste at most 12.5 %. More slices would make refills
/// rarer, but a heap keeps a slab of each class that it has used, and huge pages make the whole slab resident.
pub fn slab_slices(geometry: &impl Geometry, stride: u32) -> u32 {
    let mut bytes = block_slices(geometry, stride) << geometry.slice_shift();
    while bytes % stride > bytes / 8 {
        bytes += 1 << geometry.slice_shift();
    }
    bytes >> geometry.slice_shift()
}

/// The fewest slices that hold a block of `stride` bytes wherever the slab starts in a SuperSlab, even right after the
/// metadata.
pub fn block_slices(geometry: &impl Geometry, stride: u32) -> u32 {
    let slice_bytes = 1 << geometry.slice_shift();
    (reserved_bytes(geometry) % slice_bytes + stride).div_ceil(slice_bytes)
}

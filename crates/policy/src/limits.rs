//! Sizes that hold in every world.

/// Bytes of an OS page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Largest alignment that is honoured, in bytes; the base of an arena is a multiple of it.
pub const ALIGN_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a thread heap's map in every world: the heap, then its mail word on the last cache line.
pub const HEAP_BYTES: u64 = 8192;
/// Thread heaps that can exist at once.
pub const HEAPS_MAX: u32 = 4096;
/// Bytes of a link in a free block.
pub const LINK_BYTES: u64 = 4;

//! Sizes that are the same in every backend.

/// Bytes of an OS page.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Largest supported alignment, in bytes. The base of a reservation is a multiple of it.
pub const ALIGN_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a thread heap's slot. The slot holds the heap; its last cache line holds the head of the heap's message
/// queue.
pub const HEAP_BYTES: u64 = 8192;
/// Maximum number of thread heaps that exist at the same time.
pub const HEAPS_MAX: u32 = 4096;
/// Bytes of a link in a free block.
pub const LINK_BYTES: u64 = 4;

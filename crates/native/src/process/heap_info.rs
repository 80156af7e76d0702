//! Sums for `mallinfo` and similar functions, and returning memory on request (`malloc_trim`).
//!
//! Only the calling thread's heap and abandoned SuperSlabs can be inspected. SuperSlabs of other threads count as fully
//! used.

use std::fmt::{self, Write};
use std::sync::atomic::Ordering;

use hksim_policy::stats::HeapStats;

use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{AllocatorKind, started};
use crate::call_counts::CALLS;

/// Sums over the process's allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapInfo {
    /// SuperSlabs that heaps own, and present SuperSlabs that the pool caches.
    pub superslab_bytes: u64,
    /// Live blocks in these SuperSlabs, rounded up to their size classes.
    pub used_bytes: u64,
    /// Present memory that the pool caches, including freed huge blocks.
    pub kept_bytes: u64,
    /// Huge blocks in use.
    pub huge_blocks: u64,
    /// Usable bytes of huge blocks in use.
    pub huge_bytes: u64,
}

impl HeapInfo {
    /// Free bytes in SuperSlabs.
    pub fn free_bytes(&self) -> u64 {
        self.superslab_bytes - self.used_bytes
    }

    /// Writes the XML of glibc's `malloc_info`, with one arena.
    ///
    /// # Errors
    /// Errors from writing to `out`.
    pub fn xml(&self, out: &mut impl Write) -> fmt::Result {
        let HeapInfo { superslab_bytes, huge_blocks, huge_bytes, .. } = self;
        let all = superslab_bytes + huge_bytes;
        writeln!(out, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>")?;
        writeln!(out, "<total type=\"fast\" count=\"0\" size=\"0\"/>")?;
        writeln!(out, "<total type=\"rest\" count=\"0\" size=\"{}\"/>", self.free_bytes())?;
        writeln!(out, "<system type=\"current\" size=\"{superslab_bytes}\"/>\n</heap>")?;
        writeln!(out, "<total type=\"fast\" count=\"0\" size=\"0\"/>")?;
        writeln!(out, "<total type=\"rest\" count=\"0\" size=\"{}\"/>", self.free_bytes())?;
        writeln!(out, "<total type=\"mmap\" count=\"{huge_blocks}\" size=\"{huge_bytes}\"/>")?;
        writeln!(out, "<system type=\"current\" size=\"{all}\"/>\n</malloc>")
    }
}

fn info_of<G: ProcessGeometry>(process_allocator: &'static ProcessAllocator<G>) -> HeapInfo {
    let allocator = process_allocator.allocator();
    let mut stats = HeapStats::new();
    if let Some(heap) = process_allocator.heap() {
        // SAFETY: the calling thread's own heap.
        allocator.add_heap_stats(unsafe { heap.as_ref() }, &mut stats);
    }
    allocator.add_abandoned_stats(&mut stats);
    let pool = allocator.pool_stats();
    let bytes_of = |superslabs: u64| superslabs << allocator.geometry.superslab_shift();
    let others = pool.superslabs.saturating_sub(stats.superslabs);
    HeapInfo {
        superslab_bytes: bytes_of(pool.superslabs + pool.idle_present),
        used_bytes: stats.live_bytes() + bytes_of(others),
        kept_bytes: bytes_of(pool.idle_present) + pool.huge_idle_bytes,
        huge_blocks: pool.huge_blocks,
        huge_bytes: pool.huge_bytes,
    }
}

/// The current sums; zeros before the first allocation.
pub fn heap_info() -> HeapInfo {
    match started() {
        Some(AllocatorKind::Constant) => info_of(&CONSTANT),
        Some(AllocatorKind::Configured) => info_of(&CONFIGURED),
        None => HeapInfo::default(),
    }
}

/// Number of system calls so far that returned memory.
fn given_back() -> u64 {
    CALLS.iter().filter(|count| count.gives_back).map(|count| count.ok.load(Ordering::Relaxed)).sum()
}

fn trim_of<G: ProcessGeometry>(process_allocator: &'static ProcessAllocator<G>) {
    // SAFETY: the calling thread's own heap; the policy never calls back into this crate's process functions.
    let heap = process_allocator.heap().map(|mut heap| unsafe { heap.as_mut() });
    process_allocator.allocator().purge_now(heap);
}

/// Purges immediately what the policy would purge after its delay: empty SuperSlabs, freed huge blocks, and the calling
/// thread's empty spans. Returns whether any memory was returned to the kernel.
pub fn trim() -> bool {
    let before = given_back();
    match started() {
        Some(AllocatorKind::Constant) => trim_of(&CONSTANT),
        Some(AllocatorKind::Configured) => trim_of(&CONFIGURED),
        None => {}
    }
    given_back() > before
}

//! Which requests reuse present memory. The tests count the SuperSlabs that were ever used: only a SuperSlab's first
//! use has to make memory present.

use hksim_policy::memory::Block;
use hksim_policy::vocabulary::{Align, Huge, Prefault};
use hksim_policy::{Memory, Policy, Request, ThreadHeap, World};
use hksim_testkit::PlainMemory;

use super::{MIB, Plain, allocator, zeroed};

/// SuperSlabs that were ever used.
fn used(allocator: &Plain) -> u32 {
    allocator.mem.pool().high_water.get()
}

fn take(allocator: &Plain, heap: &mut ThreadHeap<PlainMemory>, bytes: u64) -> Block<u32> {
    allocator.allocate(heap, Request::plain(bytes)).unwrap()
}

/// An allocator with a freed block of six SuperSlabs, all of which was written.
fn with_a_freed_run(policy: Policy) -> (Plain, ThreadHeap<PlainMemory>) {
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let bytes = 6 * policy.superslab_bytes;
    let run = take(&allocator, &mut heap, bytes);
    allocator.mem.app_write(run, 0, bytes);
    allocator.free(&mut heap, run);
    (allocator, heap)
}

#[test]
fn superslabs_and_shorter_blocks_are_split_off_a_freed_run() {
    let (allocator, mut heap) = with_a_freed_run(Policy::default());
    take(&allocator, &mut heap, 100);
    take(&allocator, &mut heap, 4 * MIB);
    take(&allocator, &mut heap, 2 * MIB);
    assert_eq!(allocator.mem.pool().huge_idle_bytes.get(), 4 * MIB, "two of six SuperSlabs are left");
    take(&allocator, &mut heap, 4 * MIB);
    assert_eq!((used(&allocator), allocator.mem.pool().huge_idle.count.get()), (6, 0));
    take(&allocator, &mut heap, 2 * MIB);
    assert_eq!(used(&allocator), 7, "no cached run is left");
}

#[test]
fn split_off_memory_is_not_assumed_zero() {
    let (allocator, mut heap) = with_a_freed_run(Policy::default());
    for bytes in [100, 60 << 10, 500 << 10, 1 << 20, 900 << 10] {
        let block = allocator.allocate(&mut heap, zeroed(bytes)).unwrap();
        assert!(allocator.mem.is_zero(allocator.mem.arena_offset(block), bytes), "{bytes} bytes");
    }
    assert_eq!((used(&allocator), allocator.mem.pool().huge_idle_bytes.get()), (6, 8 * MIB));
}

#[test]
fn a_block_of_one_superslab_reuses_an_empty_superslab() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let small = take(&allocator, &mut heap, 1 << 10);
    allocator.free(&mut heap, small);
    // The bin keeps its slab until its heap closes.
    allocator.close_heap(heap);
    let mut heap = allocator.open_heap().unwrap();
    let block = take(&allocator, &mut heap, 2 * MIB);
    assert_eq!((used(&allocator), block.superslab), (1, small.superslab));
}

#[test]
fn a_run_of_similar_size_is_reused_before_the_oldest_is_split() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let [old, young] = [6, 4].map(|superslabs| take(&allocator, &mut heap, superslabs * 2 * MIB));
    allocator.free(&mut heap, old);
    allocator.free(&mut heap, young);
    let small = take(&allocator, &mut heap, 100);
    assert_eq!(small.superslab, old.superslab, "split off the run that will be purged first");
    assert_eq!(take(&allocator, &mut heap, 7 * MIB), young, "the whole run, although the other is large enough");
}

#[test]
fn a_reused_buffer_gets_its_run_back_after_a_split() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    for round in 0..4 {
        let buffer = take(&allocator, &mut heap, 12 * MIB);
        assert_eq!(buffer.superslab, round, "the run gets as much at its end as was split off its front");
        allocator.free(&mut heap, buffer);
        take(&allocator, &mut heap, 1100 << 10);
    }
    assert_eq!(used(&allocator), 6 + 3, "no more SuperSlabs than are in use");
}

#[test]
fn a_block_grows_over_the_rest_of_the_run_it_was_split_off() {
    let (allocator, mut heap) = with_a_freed_run(Policy::default());
    let block = take(&allocator, &mut heap, 2 * MIB);
    let grown = allocator.resize(&mut heap, block, 6 * MIB).unwrap();
    assert_eq!((grown, used(&allocator)), (block, 6));
    assert_eq!(allocator.mem.pool().huge_idle_bytes.get(), 6 * MIB);
    assert_eq!(allocator.resize(&mut heap, grown, 12 * MIB), Some(block));
    assert_eq!(allocator.mem.pool().huge_idle.count.get(), 0);
}

#[test]
fn mremap_moves_to_memory_that_is_not_present() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let block = take(&allocator, &mut heap, 2 * MIB);
    let wall = take(&allocator, &mut heap, 2 * MIB);
    let freed = take(&allocator, &mut heap, 10 * MIB);
    allocator.free(&mut heap, freed);
    let moved = allocator.resize(&mut heap, block, 8 * MIB).unwrap();
    assert!(moved.superslab > freed.superslab, "the block's pages are moved to an untouched run");
    assert_eq!(allocator.mem.pool().huge_idle_bytes.get(), 10 * MIB);
    allocator.free(&mut heap, wall);
}

#[test]
fn fresh_zeros_are_preferred_to_cleared_memory() {
    let (allocator, mut heap) = with_a_freed_run(Policy::default());
    let block = allocator.allocate(&mut heap, zeroed(4 * MIB)).unwrap();
    assert_eq!(block.superslab, 6);
    let same = allocator.allocate(&mut heap, zeroed(12 * MIB)).unwrap();
    assert_eq!(same.superslab, 0, "a run of exactly the block's size is cleared");
    assert!(allocator.mem.is_zero(allocator.mem.arena_offset(same), 12 * MIB));
}

#[test]
fn present_memory_is_preferred_to_a_purged_superslab() {
    let policy = Policy { purge_delay_ns: 10, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let run = take(&allocator, &mut heap, 4 * MIB);
    let small = take(&allocator, &mut heap, 1 << 10);
    allocator.free(&mut heap, small);
    allocator.close_heap(heap);
    allocator.mem.set_now(20);
    let mut heap = allocator.open_heap().unwrap();
    allocator.free(&mut heap, run);
    assert_eq!(take(&allocator, &mut heap, 1 << 10).superslab, run.superslab);
}

#[test]
fn runs_are_shared_only_if_a_superslab_is_one_huge_page() {
    let apart = [
        Policy { huge: Huge::Never, ..Policy::default() },
        Policy { huge: Huge::Collapse, ..Policy::default() },
        Policy { align: Align::Trim, ..Policy::default() },
        Policy { prefault: Prefault::Touch, ..Policy::default() },
        Policy { huge_page_bytes: 64 << 10, ..Policy::default() },
        Policy { superslab_bytes: 4 * MIB, ..Policy::default() },
        Policy { superslab_bytes: MIB, ..Policy::default() },
    ];
    for policy in apart {
        let (allocator, mut heap) = with_a_freed_run(policy);
        take(&allocator, &mut heap, 100);
        assert_eq!(used(&allocator), 7, "{policy:?}");
    }
}

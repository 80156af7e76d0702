//! Regression tests: the shortest program for each past bug.

use hksim_policy::vocabulary::{Header, Huge, MetaPlace, Purge};
use hksim_policy::{Memory, Policy, Request, World};
use hksim_testkit::Failing;

use super::{MIB, allocator, zeroed};

#[test]
fn memory_after_a_moved_block_is_not_assumed_zero() {
    let never = Policy { huge: Huge::Never, purge: Purge::None, huge_cache_bytes: 0, ..Policy::default() };
    let allocator = allocator(never, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let dirty = allocator.allocate(&mut heap, Request::plain(4 * MIB)).unwrap();
    allocator.mem.app_write(dirty, 0, 4 * MIB);
    allocator.free(&mut heap, dirty);
    let short = allocator.allocate(&mut heap, Request::plain(3 * MIB)).unwrap();
    assert_eq!(short, dirty, "the shorter block reuses the run");
    let wall = allocator.allocate(&mut heap, Request::plain(2 * MIB)).unwrap();
    let moved = allocator.resize(&mut heap, short, 9 * MIB).unwrap();
    assert_ne!(moved, short, "the next block prevents growth in place");
    let again = allocator.allocate(&mut heap, zeroed(4 * MIB)).unwrap();
    assert_eq!(again, dirty);
    assert!(allocator.mem.is_zero(allocator.mem.arena_offset(again), 4 * MIB));
    allocator.free(&mut heap, wall);
}

#[test]
fn memory_after_a_purged_block_is_not_assumed_zero() {
    let policy = Policy { huge: Huge::Never, huge_cache_bytes: 0, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let dirty = allocator.allocate(&mut heap, Request::plain(4 * MIB)).unwrap();
    allocator.mem.app_write(dirty, 0, 4 * MIB);
    allocator.mem.set_failing(Failing::Call(0));
    allocator.free(&mut heap, dirty);
    assert_eq!(allocator.mem.failed_calls(), 1, "the purge of the first block failed");
    let short = allocator.allocate(&mut heap, Request::plain(3 * MIB)).unwrap();
    allocator.free(&mut heap, short);
    let again = allocator.allocate(&mut heap, zeroed(4 * MIB)).unwrap();
    assert!(allocator.mem.is_zero(allocator.mem.arena_offset(again), 4 * MIB));
}

#[test]
fn tiny_blocks_have_the_requested_alignment() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    for bytes in 0..=8 {
        let block = allocator.allocate(&mut heap, Request { align: 16, ..Request::plain(bytes) }).unwrap();
        assert!(block.offset.is_multiple_of(16), "{bytes} bytes at {:#x}", block.offset);
    }
}

#[test]
fn a_large_block_can_start_at_offset_0_with_sidecar_metadata() {
    let policy = Policy { header: Header::Full, header_bytes: 16, meta: MetaPlace::Sidecar, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let block = allocator.allocate(&mut heap, Request::plain(MIB / 2)).unwrap();
    assert_eq!(block.offset, 0);
    allocator.free(&mut heap, block);
    assert_eq!(allocator.mem.pool().superslabs.get(), 0);
}

#[test]
fn sizes_near_the_maximum_integer_are_refused() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    for bytes in [64, MIB / 2, 3 * MIB] {
        let block = allocator.allocate(&mut heap, Request::plain(bytes)).unwrap();
        for absurd in [u64::MAX, u64::MAX - 4095, u64::MAX - 8192, 1 << 63, 1 << 47] {
            assert_eq!(allocator.resize(&mut heap, block, absurd), None, "{bytes} to {absurd}");
            assert_eq!(allocator.allocate(&mut heap, zeroed(absurd)), None);
        }
        allocator.free(&mut heap, block);
    }
}

#[test]
fn every_fallback_from_reserved_huge_pages_is_counted() {
    for (huge, expected) in [(Huge::Hugetlb, (5, 0)), (Huge::HugetlbPlain, (0, 5))] {
        let policy = Policy { huge, ..Policy::default() };
        let allocator = allocator(policy, |memory| memory.set_hugetlb_pages(2));
        let mut heap = allocator.open_heap().unwrap();
        let blocks: Vec<_> = (0..7).map(|_| allocator.allocate(&mut heap, zeroed(2 * MIB)).unwrap()).collect();
        for &block in &blocks {
            allocator.mem.app_write(block, 0, 2 * MIB);
        }
        let pool = allocator.mem.pool();
        assert_eq!((pool.fallbacks_to_thp.get(), pool.fallbacks_to_4k.get()), expected, "{huge:?}");
    }
}

#[test]
fn blocks_of_a_stale_message_are_collected_when_the_slab_runs_out() {
    let allocator = allocator(Policy::default(), |_| {});
    let (mut owner, mut other) = (allocator.open_heap().unwrap(), allocator.open_heap().unwrap());
    let mut allocate = || allocator.allocate(&mut owner, Request::plain(1 << 10)).unwrap();
    let first = allocate();
    let mut blocks = vec![first];
    let slab_of = |offset: u32| offset / (64 << 10);
    while slab_of(blocks[blocks.len() - 1].offset) == slab_of(first.offset) {
        blocks.push(allocate());
    }
    let (own, others) = (blocks[3], blocks[5]);
    // The slab was full. A free by its owner lists it again, and a free by another heap then sends a stale message.
    allocator.free(&mut owner, own);
    allocator.free(&mut other, others);
    let mut again = (0..200).map(|_| allocator.allocate(&mut owner, Request::plain(1 << 10)).unwrap());
    let mut in_first = again.by_ref().filter(|block| slab_of(block.offset) == slab_of(first.offset));
    assert_eq!([in_first.next(), in_first.next()], [Some(own), Some(others)]);
}

#[test]
fn a_slab_in_a_full_arena_takes_any_free_span_that_holds_a_block() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut heap = allocator.open_heap().unwrap();
    // Each block of 56 KiB fills one slice.
    let mut take = |bytes| allocator.allocate(&mut heap, Request::plain(bytes));
    let blocks: Vec<_> = std::iter::from_fn(|| take(56 << 10)).collect();
    assert!(blocks.len() >= 500, "{} blocks in 512 slices", blocks.len());
    assert_eq!(take(48 << 10), None);
    let every_other = blocks.iter().step_by(2).map(|&block| allocator.free(&mut heap, block)).count();
    let in_gaps = (0..every_other).map_while(|_| allocator.allocate(&mut heap, Request::plain(48 << 10))).count();
    assert!(in_gaps + 1 >= every_other, "{in_gaps} in {every_other} gaps");
}

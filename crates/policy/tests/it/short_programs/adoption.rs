//! Adoption of the SuperSlabs of ended threads.

use hksim_policy::{Memory, Policy, Request};

use super::allocator;

/// Counts of the pool's SuperSlabs: in use (including abandoned), abandoned, idle.
fn counts(allocator: &super::Plain) -> (u32, u32, u32) {
    let pool = allocator.mem.pool();
    (pool.superslabs.get(), pool.abandoned.count.get(), pool.idle.count.get())
}

#[test]
fn a_free_adopts_the_superslab_of_an_ended_thread() {
    let allocator = allocator(Policy::default(), |_| {});
    let mut main = allocator.open_heap().unwrap();
    let own = allocator.allocate(&mut main, Request::plain(100)).unwrap();
    let left: Vec<_> = (0..6)
        .map(|_| {
            let mut heap = allocator.open_heap().unwrap();
            let blocks = [64, 64, 300 << 10].map(|bytes| allocator.allocate(&mut heap, Request::plain(bytes)).unwrap());
            allocator.close_heap(heap);
            blocks
        })
        .collect();
    // Each thread adopts the SuperSlab of the previous one, so all blocks are in one SuperSlab.
    assert_eq!(counts(&allocator), (2, 1, 0));
    let [first, rest @ ..] = &left[..] else { unreachable!() };
    allocator.free(&mut main, first[0]);
    assert_eq!(counts(&allocator), (2, 0, 0));
    allocator.validate(&main).unwrap();
    first[1..].iter().chain(rest.iter().flatten()).for_each(|&block| allocator.free(&mut main, block));
    assert_eq!(counts(&allocator), (1, 0, 1), "freeing the last block of the adopted SuperSlab releases it");
    allocator.free(&mut main, own);
    allocator.validate(&main).unwrap();
}

/// The threads live at the same time, so that each has its own SuperSlab.
#[test]
fn memory_of_ended_threads_is_released_when_others_free_its_blocks() {
    let policy = Policy { cache_superslabs: 1, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut main = allocator.open_heap().unwrap();
    let mut heaps: Vec<_> = (0..8).map(|_| allocator.open_heap().unwrap()).collect();
    let blocks: Vec<_> = heaps.iter_mut().map(|heap| allocator.allocate(heap, Request::plain(1000)).unwrap()).collect();
    heaps.into_iter().for_each(|heap| allocator.close_heap(heap));
    assert_eq!(counts(&allocator), (8, 8, 0));
    blocks.into_iter().for_each(|block| allocator.free(&mut main, block));
    assert_eq!(counts(&allocator), (0, 0, 1));
}

//! Which heaps get huge pages with their first SuperSlab.

use hksim_policy::meta::Pages;
use hksim_policy::vocabulary::{Align, Huge, Prefault};
use hksim_policy::{Memory, Policy, Request};

use super::{MIB, Plain, allocator};

/// The page size of the SuperSlab that holds a new thread's block.
fn pages_of_a_new_heap(allocator: &Plain) -> Pages {
    let mut heap = allocator.open_heap().unwrap();
    let block = allocator.allocate(&mut heap, Request::plain(100)).unwrap();
    allocator.mem.entry(block.superslab).pages()
}

#[test]
fn further_heaps_start_with_small_pages_and_get_huge_pages_later() {
    for align in [Align::Arena, Align::Trim, Align::Kernel] {
        let allocator = allocator(Policy { huge_heaps: 2, align, ..Policy::default() }, |_| {});
        assert_eq!(
            [(); 4].map(|()| pages_of_a_new_heap(&allocator)),
            [Pages::Huge, Pages::Huge, Pages::Small, Pages::Small]
        );
        let mut heap = allocator.open_heap().unwrap();
        let blocks = [(); 6].map(|()| allocator.allocate(&mut heap, Request::plain(900 << 10)).unwrap());
        let pages = blocks.map(|block| allocator.mem.entry(block.superslab).pages());
        let small = pages.iter().filter(|&&pages| pages == Pages::Small).count();
        assert_eq!(
            (pages[0], pages[5], small),
            (Pages::Small, Pages::Huge, 2),
            "two blocks fill the heap's first SuperSlab"
        );
    }
}

/// A SuperSlab with small pages is purged, then serves a heap and a huge block that use huge pages.
#[test]
fn a_superslab_with_small_pages_gets_huge_page_advice_again() {
    let policy = Policy { huge_heaps: 1, purge_delay_ns: 0, cache_superslabs: 0, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut main = allocator.open_heap().unwrap();
    let mut other = allocator.open_heap().unwrap();
    let block = allocator.allocate(&mut other, Request::plain(100)).unwrap();
    let small = allocator.mem.entry(block.superslab);
    assert_eq!((block.superslab, small.pages()), (0, Pages::Small));
    allocator.free(&mut other, block);
    allocator.close_heap(other);
    let huge = allocator.allocate(&mut main, Request::plain(5 * MIB)).unwrap();
    assert_eq!((huge.superslab, small.pages()), (0, Pages::Huge));
}

/// The rule does not apply if SuperSlabs share a huge page, if they are prefaulted, or if the policy does not request
/// huge pages.
#[test]
fn heaps_start_with_small_pages_only_if_this_saves_memory() {
    let none = Policy { huge_heaps: 0, ..Policy::default() };
    for policy in [
        Policy { superslab_bytes: MIB, ..none },
        Policy { prefault: Prefault::PopulateWrite, ..none },
        Policy { huge: Huge::Never, ..none },
        Policy { huge: Huge::System, ..none },
        Policy { huge: Huge::Collapse, ..none },
    ] {
        assert_eq!(pages_of_a_new_heap(&allocator(policy, |_| {})), Pages::Huge, "{policy:?}");
    }
    assert_eq!(pages_of_a_new_heap(&allocator(none, |_| {})), Pages::Small);
}

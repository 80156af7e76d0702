//! Which SuperSlabs get huge pages, by how much of them blocks can fill.

use hksim_policy::meta::Pages;
use hksim_policy::vocabulary::{Align, Huge, Prefault};
use hksim_policy::{Memory, Policy, Request};

use super::{MIB, allocator};

/// The page sizes of the SuperSlabs that hold the first and the last byte of a block.
fn pages(policy: Policy, bytes: u64) -> [Pages; 2] {
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let block = allocator.allocate(&mut heap, Request::plain(bytes)).unwrap();
    let last = (u64::from(block.offset) + bytes - 1) / policy.superslab_bytes;
    let ordinal = allocator.mem.ordinal(block.superslab);
    [ordinal, ordinal + last as u32].map(|ordinal| allocator.mem.entry(ordinal).pages())
}

#[test]
fn blocks_that_leave_much_of_a_superslab_unused_get_small_pages() {
    for align in [Align::Arena, Align::Trim, Align::Kernel] {
        let policy = Policy { huge_fill_percent: 75, align, ..Policy::default() };
        let kib = |number: u64| number << 10;
        for (bytes, expected) in [
            (100, [Pages::Huge; 2]),
            (kib(64), [Pages::Huge; 2]),
            // Three of 512 KiB fill 75 %, two of 700 KiB 68 %, three of 600 KiB 88 %, and one of 1 MiB 50 %.
            (kib(512), [Pages::Huge; 2]),
            (kib(600), [Pages::Huge; 2]),
            (kib(700), [Pages::Small; 2]),
            (kib(1024), [Pages::Small; 2]),
            // Huge blocks: the last SuperSlab counts.
            (kib(1500), [Pages::Small; 2]),
            (kib(1600), [Pages::Huge; 2]),
            (kib(2048), [Pages::Huge; 2]),
            (kib(3000), [Pages::Huge, Pages::Small]),
            (kib(3900), [Pages::Huge; 2]),
        ] {
            assert_eq!(pages(policy, bytes), expected, "{bytes} bytes, {align:?}");
            assert_eq!(pages(Policy { huge_fill_percent: 0, ..policy }, bytes), [Pages::Huge; 2], "{bytes} bytes");
        }
    }
}

#[test]
fn the_rule_does_not_apply_where_superslabs_share_huge_pages_or_are_present_anyway() {
    let policy = Policy { huge_fill_percent: 100, ..Policy::default() };
    for other in [
        Policy { superslab_bytes: MIB, ..policy },
        Policy { prefault: Prefault::Touch, ..policy },
        Policy { huge: Huge::Never, ..policy },
        Policy { huge: Huge::System, ..policy },
    ] {
        assert_eq!(pages(other, other.superslab_bytes / 2), [Pages::Huge; 2], "{other:?}");
    }
}

#[test]
fn a_huge_block_that_grows_asks_for_its_new_tail() {
    let policy = Policy { huge_fill_percent: 75, ..Policy::default() };
    let allocator = allocator(policy, |_| {});
    let mut heap = allocator.open_heap().unwrap();
    let block = allocator.allocate(&mut heap, Request::plain(4 * MIB)).unwrap();
    let grown = allocator.resize(&mut heap, block, 4 * MIB + 4096).unwrap();
    let ordinal = allocator.mem.ordinal(grown.superslab);
    let pages = [0, 1, 2].map(|part| allocator.mem.entry(ordinal + part).pages());
    assert_eq!(pages, [Pages::Huge, Pages::Huge, Pages::Small]);
}

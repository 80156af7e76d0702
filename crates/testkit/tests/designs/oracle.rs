//! The pages of the bump allocator, and of blocks with mappings of their own, by arithmetic: no kernel model, no allocator,
//! no address space.

use std::collections::BTreeMap;

use hksim_designs::bump::{Bump, BumpSettings};
use hksim_designs::page_heap::{PageHeap, PageHeapSettings};
use hksim_engine::{ByKind, TouchRule};
use hksim_testkit::events::random_trace;
use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, Op};

use crate::common::{NoThp, Setup, Trace, free, malloc};

const PAGE: u64 = 4096;

/// Blocks of 48 bytes: with its header and alignment, each takes 64 bytes.
pub fn bump_touches_the_pages_that_arithmetic_says() -> Result<(), String> {
    const BLOCKS: u64 = 10_000;
    const CHUNK_BYTES: u64 = 64 << 10;
    let _no_thp = NoThp::new()?;
    let trace = Trace::of_ops((0..BLOCKS as u32).map(|object| malloc(object, 48)));
    let setup = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: CHUNK_BYTES }, TouchRule::All)?;
    let (predicted, _) = setup.check(&trace, "48-byte blocks")?;
    let bytes = BLOCKS * 64;
    let pages = bytes.div_ceil(PAGE);
    let report = predicted.report;
    assert_eq!((report.faults, report.traps, report.installs.total), (pages, pages, pages));
    assert_eq!(report.installs.by_kind, ByKind { base_4k: pages, ..ByKind::default() });
    assert_eq!(report.rss_bytes_peak, pages * PAGE);
    assert_eq!((report.os_calls.mmap, report.vmas_peak), (bytes.div_ceil(CHUNK_BYTES), 1));
    // One page of PTEs for each 2 MiB, and the two levels above.
    assert_eq!(report.page_table_bytes_peak, (bytes.div_ceil(2 << 20) + 2) * PAGE);
    // Only headers: one page for each 64 of them, of which the first is before byte 16.
    let untouched = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: CHUNK_BYTES }, TouchRule::None)?;
    let (headers, _) = untouched.check(&trace, "only headers")?;
    assert_eq!(headers.report.installs.by_reason.header, pages);
    Ok(())
}

/// What the oracle knows of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Zero,
    Written,
}

/// The oracle: where blocks are, and which pages are touched in which order.
struct Oracle {
    chunk_bytes: u64,
    next: u64,
    end: u64,
    maps: u64,
    blocks: BTreeMap<u32, (u64, u64, u64)>,
    pages: BTreeMap<u64, State>,
    installs: ByKind,
}

impl Oracle {
    fn touch(&mut self, at: u64, bytes: u64, access: Access) {
        for page in at / PAGE..(at + bytes).div_ceil(PAGE) {
            match (self.pages.get(&page), access) {
                (None, Access::Read) => {
                    self.installs.zero += 1;
                    self.pages.insert(page, State::Zero);
                }
                (None, Access::Write) => {
                    self.installs.base_4k += 1;
                    self.pages.insert(page, State::Written);
                }
                (Some(State::Zero), Access::Write) => {
                    self.installs.cow += 1;
                    self.pages.insert(page, State::Written);
                }
                _ => {}
            }
        }
    }

    /// Places a block; returns its address and the bytes that it may use.
    fn place(&mut self, bytes: u64, align: u64) -> (u64, u64) {
        let usable = bytes.max(1).div_ceil(16) * 16;
        let align = align.max(16);
        let start = |next: u64| (next + 8).div_ceil(align) * align;
        if start(self.next) + usable > self.end {
            // Chunks follow each other without gaps, because nothing is ever unmapped.
            self.end += (usable + align + 8).max(self.chunk_bytes).div_ceil(PAGE) * PAGE;
            self.maps += 1;
        }
        let block = start(self.next);
        self.next = block + usable;
        self.touch(block - 8, 8, Access::Write);
        (block, usable)
    }

    fn first_touches(&mut self, at: u64, bytes: u64, new: bool, touch: InitialTouch) {
        match touch {
            InitialTouch::All if bytes > 0 => self.touch(at, bytes, Access::Write),
            InitialTouch::FirstByte if bytes > 0 && new => self.touch(at, 1, Access::Write),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        match event.op {
            Op::Alloc { object, size, align_log2, call, initial_touch } => {
                let bytes = if call == AllocCall::Pvalloc { size.div_ceil(PAGE) * PAGE } else { size };
                let (block, usable) = self.place(bytes, 1 << align_log2);
                self.first_touches(block, size, true, initial_touch);
                self.blocks.insert(object.0, (block, size, usable));
            }
            Op::ReallocUnknown { object, size, .. } => {
                let (block, usable) = self.place(size, 1);
                self.blocks.insert(object.0, (block, size, usable));
            }
            Op::Realloc { object, size, initial_touch, .. } => {
                let (mut block, old_size, mut usable) = self.blocks[&object.0];
                self.touch(block - 8, 8, Access::Read);
                if size > usable {
                    let old = (block, usable);
                    (block, usable) = self.place(size, 1);
                    // Page by page: the old bytes are read, the new ones written. The pages of one block are never those
                    // that a page of the other waits for, so the order does not matter.
                    self.touch(old.0, old.1, Access::Read);
                    self.touch(block, old.1, Access::Write);
                }
                self.first_touches(
                    block + old_size.min(size),
                    size.saturating_sub(old_size),
                    old_size == 0,
                    initial_touch,
                );
                self.blocks.insert(object.0, (block, size, usable));
            }
            Op::Touch { object, offset, bytes, access } => {
                let (block, size, _) = self.blocks[&object.0];
                let end = (offset + u64::from(bytes)).min(size);
                if offset < end {
                    self.touch(block + offset, end - offset, access);
                }
            }
            Op::UsableSize { object } => {
                let (block, ..) = self.blocks[&object.0];
                self.touch(block - 8, 8, Access::Read);
            }
            _ => {}
        }
    }
}

pub fn bump_agrees_with_the_oracle_on_random_traces() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    for seed in 0..20 * hksim_testkit::test_scale() {
        let random = random_trace(seed, 4_000, 3, 300 << 10);
        let chunk_bytes = PAGE << (seed % 9);
        let setup = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes }, TouchRule::Recorded)?;
        let predicted = setup.predict(&Trace::of(&random.events)).report;
        let (blocks, pages) = (BTreeMap::new(), BTreeMap::new());
        let mut oracle = Oracle { chunk_bytes, next: 0, end: 0, maps: 0, blocks, pages, installs: ByKind::default() };
        random.events.iter().for_each(|event| oracle.event(event));
        assert_eq!(predicted.installs.by_kind, oracle.installs, "seed {seed}");
        assert_eq!(predicted.os_calls.mmap, oracle.maps, "seed {seed}");
        let written = oracle.pages.values().filter(|&&state| state == State::Written).count() as u64;
        assert_eq!(predicted.rss_bytes_end, written * PAGE, "seed {seed}");
        assert_eq!(predicted.requests_failed, 0, "seed {seed}");
    }
    Ok(())
}

/// Blocks of 100 000 bytes, one after the other: each is 25 pages, in a mapping of its own if it is not below the threshold.
pub fn blocks_above_the_threshold_have_mappings() -> Result<(), String> {
    const BLOCKS: u64 = 20;
    const PAGES: u64 = 25;
    let _no_thp = NoThp::new()?;
    let trace = Trace::of_ops((0..BLOCKS).flat_map(|_| [malloc(0, 100_000), free(0)]));
    let default = PageHeapSettings { large_threshold_bytes: 64 << 10, ..PageHeapSettings::default() };
    // The settings, munmaps, and installs of pages of blocks.
    let cases = [
        (default, BLOCKS, BLOCKS * PAGES),
        (PageHeapSettings { large_cache_bytes_max: PAGES * PAGE, ..default }, 0, PAGES),
        (PageHeapSettings { large_cache_bytes_max: (PAGES - 1) * PAGE, ..default }, BLOCKS, BLOCKS * PAGES),
        // The first block raises the threshold above its size; the others share memory of the heap.
        (PageHeapSettings { raises_threshold: true, ..default }, 1, 2 * PAGES),
        (PageHeapSettings { large_threshold_bytes: 128 << 10, ..default }, 0, PAGES),
    ];
    for (number, (settings, unmapped, pages)) in cases.into_iter().enumerate() {
        let setup = Setup::<PageHeap>::without_thp(settings, TouchRule::All)?;
        let (predicted, _) = setup.check(&trace, &format!("case {number}"))?;
        let by_reason = predicted.report.installs.by_reason;
        assert_eq!(predicted.report.os_calls.munmap, unmapped, "case {number}");
        // A block of a span may have had a link in its first page.
        let own = by_reason.application + by_reason.free_list + by_reason.refault_after_purge;
        assert_eq!(own, pages, "case {number}: {by_reason:?}");
    }
    Ok(())
}

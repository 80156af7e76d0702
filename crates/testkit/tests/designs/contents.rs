//! What a design promises its program, in a memory of bytes: blocks do not overlap, are aligned, large enough and zeroed,
//! and keep their bytes. The memory checks every access; it shares no code with the simulator.

use std::collections::BTreeMap;

use hksim_designs::page_heap::{PageHeap, PageHeapSettings, Release};
use hksim_designs::{Listed, Visitor, each};
use hksim_engine::{
    AddressSpace, Advice, Cause, Design, Errno, Growth, INVALID, Mapping, NO_MEMORY, PAGE_BYTES, Region, Request, Touch,
};
use hksim_testkit::Random;

use crate::settings;

/// A page that was touched: its bytes, and whether the allocator's tables are in it.
struct Page {
    bytes: Vec<u8>,
    is_metadata: bool,
}

/// A memory of bytes, in which only mapped pages may be accessed. `rest` is what may still be mapped.
struct Bytes {
    mapped: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, Page>,
    rest: u64,
}

impl Bytes {
    fn new(rest: u64) -> Bytes {
        Bytes { mapped: BTreeMap::new(), pages: BTreeMap::new(), rest }
    }

    fn page(&mut self, at: u64) -> &mut Page {
        let (&start, &end) = self.mapped.range(..=at).next_back().expect("a mapping");
        assert!((start..end).contains(&at), "{at:#x} is not mapped");
        let new = || Page { bytes: vec![0; PAGE_BYTES as usize], is_metadata: false };
        self.pages.entry(at / PAGE_BYTES).or_insert_with(new)
    }

    /// The bytes of a range, page by page.
    fn slices(&mut self, at: u64, bytes: u64, mut each: impl FnMut(&mut [u8])) {
        let mut start = at;
        while start < at + bytes {
            let end = ((start / PAGE_BYTES + 1) * PAGE_BYTES).min(at + bytes);
            let first = (start % PAGE_BYTES) as usize;
            each(&mut self.page(start).bytes[first..first + (end - start) as usize]);
            start = end;
        }
    }

    fn fill(&mut self, at: u64, bytes: u64, byte: u8) {
        self.slices(at, bytes, |slice| slice.fill(byte));
    }

    fn is_all(&mut self, at: u64, bytes: u64, byte: u8) -> bool {
        let mut is_all = true;
        self.slices(at, bytes, |slice| is_all &= slice.iter().all(|&own| own == byte));
        is_all
    }

    fn drop_pages(&mut self, at: u64, bytes: u64) {
        self.pages.retain(|&page, _| !(at..at + bytes).contains(&(page * PAGE_BYTES)));
    }
}

impl AddressSpace for Bytes {
    fn map(&mut self, bytes: u64, align: u64, _mapping: Mapping) -> Result<u64, Errno> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || !align.is_power_of_two() || align < PAGE_BYTES {
            return Err(INVALID);
        }
        self.rest = self.rest.checked_sub(bytes).ok_or(NO_MEMORY)?;
        // Every third mapping leaves a gap, so that not all are adjacent.
        let gap = if self.mapped.len() % 3 == 2 { 1 } else { 0 };
        let end = self.mapped.values().max().copied().unwrap_or(Region::START);
        let start = (end + gap).next_multiple_of(align);
        self.mapped.insert(start, start + bytes);
        Ok(start)
    }

    fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Errno> {
        assert_eq!(self.mapped.remove(&at), Some(at + bytes), "a whole mapping");
        self.rest += bytes;
        self.drop_pages(at, bytes);
        Ok(())
    }

    fn advise(&mut self, at: u64, bytes: u64, advice: Advice) -> Result<(), Errno> {
        match advice {
            Advice::DontNeed => self.drop_pages(at, bytes),
            // The kernel may drop the pages, or not.
            Advice::Free => {
                (at..at + bytes).step_by(2 * PAGE_BYTES as usize).for_each(|at| self.drop_pages(at, PAGE_BYTES))
            }
            _ => {}
        }
        Ok(())
    }

    fn remap(&mut self, _at: u64, _bytes: u64, _new_bytes: u64, _growth: Growth) -> Result<u64, Errno> {
        Err(NO_MEMORY)
    }

    fn read(&mut self, at: u64, _cause: Cause) -> u64 {
        assert!(at.is_multiple_of(8));
        let page = self.page(at);
        let at = (at % PAGE_BYTES) as usize;
        u64::from_ne_bytes(page.bytes[at..at + 8].try_into().expect("a word"))
    }

    fn write(&mut self, at: u64, word: u64, cause: Cause) {
        assert!(at.is_multiple_of(8));
        let page = self.page(at);
        page.is_metadata |= cause == Cause::Metadata;
        let at = (at % PAGE_BYTES) as usize;
        page.bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }

    fn touch(&mut self, at: u64, bytes: u64, touch: Touch, _cause: Cause) {
        match touch {
            Touch::Read => {}
            Touch::WriteZero => self.fill(at, bytes, 0),
            Touch::Write => self.fill(at, bytes, 0xAA),
        }
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) {
        let mut copied = Vec::new();
        self.slices(from, bytes, |slice| copied.extend_from_slice(slice));
        let mut rest = copied.as_slice();
        self.slices(to, bytes, |slice| {
            let (part, after) = rest.split_at(slice.len());
            slice.copy_from_slice(part);
            rest = after;
        });
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

/// A block with the bytes that its program wrote: equal ones.
#[derive(Clone, Copy)]
struct Block {
    at: u64,
    bytes: u64,
    fill: u8,
}

/// A program that checks each block.
struct Program<'a, D> {
    design: D,
    memory: Bytes,
    live: Vec<Block>,
    random: Random,
    label: &'a str,
}

impl<D: Design> Program<'_, D> {
    fn fill(&mut self, at: u64, bytes: u64) {
        let usable = self.design.usable_bytes(&mut self.memory, at);
        assert!(usable >= bytes, "{}: {usable} bytes for {bytes}", self.label);
        for other in &self.live {
            let is_apart = at + usable.max(1) <= other.at || other.at + other.bytes.max(1) <= at;
            assert!(is_apart, "{}: {at:#x} overlaps {:#x}", self.label, other.at);
        }
        let fill = 1 + self.random.below(255) as u8;
        self.memory.fill(at, bytes, fill);
        self.live.push(Block { at, bytes, fill });
    }

    fn check(&mut self, block: Block, bytes: u64) {
        let is_kept = self.memory.is_all(block.at, bytes, block.fill);
        assert!(is_kept, "{}: {:#x} lost its bytes", self.label, block.at);
    }

    fn allocate(&mut self, thread: u32) {
        let most = self.random.pick(&[200, 200, 5000, 300 << 10]);
        let bytes = self.random.below(most);
        let align = 1 << self.random.pick(&[0, 0, 0, 4, 6, 12, 14, 21]);
        let zeroed = self.random.per_mille(300);
        let request = Request { bytes, align, zeroed };
        let Some(at) = self.design.allocate(&mut self.memory, thread, request) else { return };
        assert!(at.is_multiple_of(align.max(16)), "{}: {at:#x} is no multiple of {align}", self.label);
        assert!(!zeroed || self.memory.is_all(at, bytes, 0), "{}: not zeroed", self.label);
        self.fill(at, bytes);
    }

    fn step(&mut self, wanted: u64) {
        let thread = self.random.below(3) as u32;
        if self.live.is_empty() || (self.live.len() as u64) < wanted && self.random.per_mille(700) {
            return self.allocate(thread);
        }
        let index = self.random.below(self.live.len() as u64) as usize;
        let block = self.live.swap_remove(index);
        self.check(block, block.bytes);
        match self.random.below(10) {
            0 => {
                self.design.thread_exit(&mut self.memory, thread);
                self.live.push(block);
            }
            1..=3 => {
                let bytes = self.random.log_uniform(100 << 10);
                let Some(at) = self.design.resize(&mut self.memory, thread, block.at, bytes) else {
                    return self.live.push(block);
                };
                let kept = block.bytes.min(bytes);
                self.check(Block { at, ..block }, kept);
                self.fill(at, bytes);
            }
            _ => self.design.free(&mut self.memory, thread, block.at),
        }
    }

    fn run(&mut self, steps: u64) {
        for step in 0..steps {
            self.step(if step / 500 % 2 == 0 { 200 } else { 10 });
        }
        for block in std::mem::take(&mut self.live) {
            self.check(block, block.bytes);
            self.design.free(&mut self.memory, 0, block.at);
        }
        (0..3).for_each(|thread| self.design.thread_exit(&mut self.memory, thread));
    }
}

/// Runs a design with random settings; with `rest`, in a memory that becomes full.
struct RandomSettings {
    seeds: std::ops::Range<u64>,
    rest: u64,
}

impl Visitor for RandomSettings {
    fn visit<D: Listed>(&mut self) {
        for seed in self.seeds.clone() {
            let mut random = Random::new(seed);
            let settings = settings::random::<D>(&mut random);
            let label = format!("{}, seed {seed}, {settings}", D::NAME);
            let mut memory = Bytes::new(self.rest);
            let settings = serde_json::from_value(settings).expect("settings");
            // Without memory for its tables, a design cannot start.
            let Ok(design) = D::start(&settings, &mut memory) else { continue };
            Program { design, memory, live: Vec::new(), random, label: &label }.run(2_000);
        }
    }
}

pub fn blocks_keep_what_a_design_promises() -> Result<(), String> {
    each(&mut RandomSettings { seeds: 0..10 * hksim_testkit::test_scale(), rest: 1 << 40 });
    Ok(())
}

pub fn a_full_memory_fails_requests_and_nothing_else() -> Result<(), String> {
    each(&mut RandomSettings { seeds: 500..500 + 10 * hksim_testkit::test_scale(), rest: 4 << 20 });
    Ok(())
}

/// With nothing kept and no transfer cache, a page heap without blocks has no pages but those of its tables.
pub fn a_page_heap_gives_back_everything() -> Result<(), String> {
    for seed in 0..10 * hksim_testkit::test_scale() {
        let mut random = Random::new(seed);
        let settings = PageHeapSettings {
            release: Release::Dontneed,
            keep_free_bytes: 0,
            transfer_batches_max: 0,
            large_cache_bytes_max: 0,
            ..serde_json::from_value(settings::random::<PageHeap>(&mut random)).expect("settings")
        };
        let label = format!("seed {seed}, {settings:?}");
        let mut memory = Bytes::new(1 << 40);
        let design = PageHeap::start(&settings, &mut memory).expect("a start");
        let mut program = Program { design, memory, live: Vec::new(), random, label: &label };
        program.run(2_000);
        let left = program.memory.pages.values().filter(|page| !page.is_metadata).count();
        assert_eq!(left, 0, "{label}");
    }
    Ok(())
}

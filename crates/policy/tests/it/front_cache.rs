//! Front caches against a model that is written from their description: a stack per heap and class.
//!
//! The model knows nothing of slabs. It names the block of every allocation that a stack serves; any other allocation
//! must return a block that is neither live nor in a stack.

use std::collections::HashSet;

use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{Header, Huge, MetaPlace};
use hksim_policy::{Allocator, Block, Memory, Policy, PolicyError, Request, RunGeometry, ThreadHeap};
use hksim_testkit::{PlainMemory, Random, drain_abandoned, test_scale};

const HEAPS: usize = 3;
/// Requests of one class each, and their zeroing is checked.
const SIZES: [u64; 3] = [48, 512, 4000];

type Heap = ThreadHeap<PlainMemory>;
type Place = (u32, u32);

fn place(block: Block<u32>) -> Place {
    (block.superslab, block.offset)
}

struct Program {
    allocator: Allocator<PlainMemory, RunGeometry>,
    blocks_max: usize,
    heaps: [Option<Heap>; HEAPS],
    /// By heap and size: blocks in the front cache, oldest first.
    stacks: [[Vec<Place>; SIZES.len()]; HEAPS],
    live: Vec<(usize, Block<u32>)>,
    random: Random,
    served: u64,
}

impl Program {
    fn new(policy: Policy, seed: u64) -> Program {
        let geometry = RunGeometry::new(&policy).unwrap();
        let layout = Layout::new(&geometry, 32 << 20);
        let memory: PlainMemory = PlainMemory::new(layout, &geometry, layout.ordinals(), 1);
        Program {
            allocator: Allocator::new(memory, geometry, policy, &layout),
            blocks_max: policy.front_cache as usize,
            heaps: [const { None }; HEAPS],
            stacks: Default::default(),
            live: Vec::new(),
            random: Random::new(seed),
            served: 0,
        }
    }

    fn open(&mut self, heap: usize) -> &mut Heap {
        let allocator = &self.allocator;
        self.heaps[heap].get_or_insert_with(|| allocator.open_heap().expect("a free slot"))
    }

    fn allocate(&mut self, heap: usize, size: usize) {
        self.open(heap);
        let request = Request { zeroed: self.random.per_mille(200), ..Request::plain(SIZES[size]) };
        let block = self.allocator.allocate(self.heaps[heap].as_mut().unwrap(), request).expect("memory");
        match self.stacks[heap][size].pop() {
            Some(expected) => {
                assert_eq!(place(block), expected, "heap {heap}, {request:?}");
                self.served += 1;
            }
            None => {
                let cached = self.stacks.iter().flatten().flatten();
                let taken: HashSet<Place> = cached.copied().chain(self.live.iter().map(|&(_, at)| place(at))).collect();
                assert!(!taken.contains(&place(block)), "{block:?} is live or in a front cache");
            }
        }
        let at = self.allocator.mem.arena_offset(block);
        assert!(!request.zeroed || self.allocator.mem.is_zero(at, request.bytes), "{request:?} is not zero");
        self.allocator.mem.store(at, &vec![0xA5; SIZES[size] as usize]);
        self.live.push((size, block));
    }

    fn free(&mut self, heap: usize) {
        if self.live.is_empty() {
            return;
        }
        self.open(heap);
        let (size, block) = self.live.swap_remove(self.random.below(self.live.len() as u64) as usize);
        self.allocator.free(self.heaps[heap].as_mut().unwrap(), block);
        let stack = &mut self.stacks[heap][size];
        if stack.len() == self.blocks_max {
            stack.drain(..self.blocks_max.div_ceil(2));
        }
        stack.push(place(block));
    }

    fn step(&mut self, step: u64) {
        let heap = self.random.below(HEAPS as u64) as usize;
        let grows = (step / 700).is_multiple_of(2);
        match self.random.below(1000) {
            0..=1 => {
                self.heaps[heap].take().into_iter().for_each(|heap| self.allocator.close_heap(heap));
                self.stacks[heap] = Default::default();
            }
            2..=4 => {
                self.allocator.purge_now(self.heaps[heap].as_mut());
                self.stacks[heap] = Default::default();
            }
            draw if draw < if grows { 650 } else { 350 } => {
                let size = self.random.below(SIZES.len() as u64) as usize;
                self.allocate(heap, size);
            }
            _ => self.free(heap),
        }
        if step.is_multiple_of(250) {
            for heap in self.heaps.iter().flatten() {
                self.allocator.validate(heap).unwrap_or_else(|why| panic!("{why:?}"));
            }
        }
    }

    /// Frees everything and closes all heaps: no memory may stay in use.
    fn end(mut self) -> u64 {
        while !self.live.is_empty() {
            let heap = self.random.below(HEAPS as u64) as usize;
            self.free(heap);
        }
        self.heaps.into_iter().flatten().for_each(|heap| self.allocator.close_heap(heap));
        drain_abandoned(&self.allocator).unwrap();
        assert_eq!(self.allocator.mem.pool().superslabs.get(), 0, "SuperSlabs stay in use");
        self.served
    }
}

#[test]
fn a_front_cache_serves_the_block_that_was_freed_last() {
    let designs = [
        (1, MetaPlace::InBand, Header::None),
        (2, MetaPlace::Sidecar, Header::None),
        (5, MetaPlace::InBand, Header::Full),
        (255, MetaPlace::InBand, Header::None),
    ];
    for (front_cache, meta, header) in designs {
        for seed in 0xF0..0xF0 + test_scale() {
            eprintln!("{front_cache} blocks, {meta:?}, {header:?}, seed {seed:#x}");
            let policy = Policy {
                superslab_bytes: 256 << 10,
                slab_bytes: 16 << 10,
                huge: Huge::Never,
                purge_delay_ns: 0,
                front_cache,
                meta,
                header,
                header_bytes: 16,
                ..Policy::default()
            };
            let mut program = Program::new(policy, seed);
            (0..10_000).for_each(|step| program.step(step));
            let served = program.end();
            assert!(served > 1000, "the front caches served only {served} requests");
        }
    }
}

#[test]
fn a_front_cache_has_at_most_255_blocks_per_class() {
    let refused = Policy { front_cache: 256, ..Policy::default() }.prepare().err();
    assert_eq!(refused, Some(PolicyError::FrontCache(256)));
    assert!(Policy { front_cache: 255, ..Policy::default() }.prepare().is_ok());
}

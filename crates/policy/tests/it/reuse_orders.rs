//! Orders of free blocks and choices of slabs, against a model of one size class that is written from their description.
//!
//! The model knows nothing of links and lists: a slab is a vector of free blocks. It learns from the allocator only where
//! a new slab begins.

use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{Carve, FreeOrder, Header, MetaPlace, SlabChoice};
use hksim_policy::{Allocator, Block, Policy, Request, RunGeometry};
use hksim_testkit::{PlainMemory, Random, test_scale};

const SLAB_BYTES: u32 = 64 << 10;
const STRIDE: u32 = 1024;

struct Slab {
    superslab: u32,
    /// Offset of its first block.
    first: u32,
    /// Blocks that were handed out at least once.
    carved: u32,
    /// Free blocks outside the bin, in the order of their frees.
    free: Vec<u32>,
}

impl Slab {
    fn capacity(&self) -> u32 {
        ((self.first / SLAB_BYTES + 1) * SLAB_BYTES - self.first) / STRIDE
    }

    fn in_use(&self) -> usize {
        self.carved as usize - self.free.len()
    }
}

struct Model {
    order: FreeOrder,
    choice: SlabChoice,
    slabs: Vec<Slab>,
    active: Option<usize>,
    /// The next blocks, first one first.
    bin: Vec<u32>,
    /// Slabs with free blocks besides the active one, in the order in which they became partial.
    partial: Vec<usize>,
}

impl Model {
    /// The block that an allocation returns; `None` if it needs a new slab.
    fn allocate(&mut self) -> Option<(u32, u32)> {
        loop {
            let active = self.active?;
            let slab = &mut self.slabs[active];
            if self.bin.is_empty() {
                let mut free = std::mem::take(&mut slab.free);
                match self.order {
                    FreeOrder::Lifo => free.reverse(),
                    FreeOrder::Fifo => {}
                    FreeOrder::Address => free.sort_unstable(),
                }
                self.bin = free;
            }
            if !self.bin.is_empty() {
                return Some((slab.superslab, self.bin.remove(0)));
            }
            if slab.carved < slab.capacity() {
                slab.carved += 1;
                return Some((slab.superslab, slab.first + (slab.carved - 1) * STRIDE));
            }
            self.active = self.choose();
        }
    }

    fn choose(&mut self) -> Option<usize> {
        let slabs = &self.slabs;
        let candidates = self.partial.iter().copied();
        let chosen = match self.choice {
            SlabChoice::Oldest => self.partial.first().copied(),
            SlabChoice::Newest => self.partial.last().copied(),
            // Of equals, `rev` makes `max_by_key` return the first.
            SlabChoice::Fullest => candidates.rev().max_by_key(|&slab| slabs[slab].in_use()),
            SlabChoice::Lowest => candidates.min_by_key(|&slab| (slabs[slab].superslab, slabs[slab].first)),
        }?;
        self.partial.retain(|&slab| slab != chosen);
        Some(chosen)
    }

    /// A new slab, whose first block this is.
    fn begin_slab(&mut self, superslab: u32, first: u32) {
        self.active = Some(self.slabs.len());
        self.slabs.push(Slab { superslab, first, carved: 1, free: Vec::new() });
    }

    fn free(&mut self, superslab: u32, offset: u32) {
        let is_home = |slab: &Slab| slab.superslab == superslab && slab.first / SLAB_BYTES == offset / SLAB_BYTES;
        let home = self.slabs.iter().position(is_home).expect("a known slab");
        self.slabs[home].free.push(offset);
        if self.active != Some(home) && !self.partial.contains(&home) {
            self.partial.push(home);
        }
    }
}

fn run(seed: u64, order: FreeOrder, choice: SlabChoice, meta: MetaPlace) -> usize {
    let policy = Policy {
        superslab_bytes: 512 << 10,
        free_order: order,
        slab_choice: choice,
        carve: Carve::Bump,
        header: Header::None,
        meta,
        ..Policy::default()
    };
    let geometry = RunGeometry::new(&policy).unwrap();
    let layout = Layout::new(&geometry, 32 << 20);
    let memory: PlainMemory = PlainMemory::new(layout, &geometry, layout.ordinals(), 1);
    let allocator = Allocator::new(memory, geometry, policy, &layout);
    let mut heap = allocator.open_heap().unwrap();
    let mut random = Random::new(seed);
    let mut model = Model { order, choice, slabs: Vec::new(), active: None, bin: Vec::new(), partial: Vec::new() };
    // The first block of a slab is never freed, so that no slab becomes empty.
    let mut live: Vec<Block<u32>> = Vec::new();
    for step in 0..12_000 {
        let wanted = 400 + 500 * ((step / 2_000) % 2);
        if live.len() < wanted && random.per_mille(800) || live.is_empty() {
            let block = allocator.allocate(&mut heap, Request::plain(u64::from(STRIDE))).expect("memory");
            match model.allocate() {
                Some(expected) => {
                    assert_eq!((block.superslab, block.offset), expected, "seed {seed:#x}, step {step}: {policy:?}");
                    live.push(block);
                }
                None => model.begin_slab(block.superslab, block.offset),
            }
        } else {
            let block = live.swap_remove(random.below(live.len() as u64) as usize);
            allocator.free(&mut heap, block);
            model.free(block.superslab, block.offset);
        }
        if step % 500 == 0 {
            allocator.validate(&heap).unwrap_or_else(|why| panic!("seed {seed:#x}, step {step}: {why:?}"));
        }
    }
    model.slabs.len()
}

#[test]
fn every_block_is_the_one_that_the_description_names() {
    let mut slabs = 0;
    for &order in FreeOrder::ALL {
        for &choice in SlabChoice::ALL {
            for meta in [MetaPlace::InBand, MetaPlace::Sidecar] {
                for seed in 0x0DE2..0x0DE2 + 2 * test_scale() {
                    slabs += run(seed, order, choice, meta);
                }
            }
        }
    }
    assert!(slabs > 24 * 10, "{slabs} slabs");
}

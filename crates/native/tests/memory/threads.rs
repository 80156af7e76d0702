//! Real threads on one allocator: blocks cross threads, heaps close with live blocks, and other threads free and adopt.
//! A block's contents are checked when it is freed or resized. At the end no memory may be in use.

use std::ptr::NonNull;
use std::sync::Mutex;

use hksim_native::MmapMemory;
use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{Align, Carve, Header, Huge, MetaPlace, Purge};
use hksim_policy::{Allocator, Memory, Policy, Request, RunGeometry, ThreadHeap};
use hksim_testkit::{Random, drain_abandoned, pattern, test_scale};

use crate::SMALL;
use crate::jitter::{self, Jitter};
use crate::kernel::Kernel;

type Shared = Allocator<Jitter, RunGeometry>;
type Heap = ThreadHeap<Jitter>;

/// A live block that is sent between threads.
struct Parcel {
    at: NonNull<u8>,
    bytes: usize,
    tag: u64,
}

// SAFETY: the block belongs to the holder of the parcel.
unsafe impl Send for Parcel {}

impl Parcel {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block is live, and only this thread has its parcel.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

/// One inbox per thread.
struct Exchange(Vec<Mutex<Vec<Parcel>>>);

impl Exchange {
    fn put(&self, to: usize, parcel: Parcel) {
        self.0[to].lock().unwrap().push(parcel);
    }

    fn take(&self, from: usize) -> Option<Parcel> {
        self.0[from].lock().unwrap().pop()
    }
}

/// A thread, which opens several heaps one after the other.
struct Worker<'a> {
    shared: &'a Shared,
    exchange: &'a Exchange,
    random: Random,
    held: Vec<Parcel>,
    next_tag: u64,
}

/// A thread does not allocate while it holds this many blocks.
const HELD_MAX: usize = 200;
const PART_BYTES: usize = pattern::SLICE_BYTES as usize;
static ZEROS: [u8; PART_BYTES] = [0; PART_BYTES];

impl Worker<'_> {
    fn check(&self, parcel: &Parcel, bytes: usize) {
        for (index, part) in parcel.bytes()[..bytes].chunks(PART_BYTES).enumerate() {
            let wrote = pattern::slice(parcel.tag, (index * PART_BYTES) as u64, part.len() as u64);
            assert!(part == wrote, "a block of {} bytes at {:p} changed", parcel.bytes, parcel.at);
        }
    }

    fn write(&mut self, parcel: &mut Parcel) {
        self.next_tag += 1;
        let tag = self.next_tag;
        parcel.tag = tag;
        for (index, part) in parcel.bytes_mut().chunks_mut(PART_BYTES).enumerate() {
            part.copy_from_slice(pattern::slice(tag, (index * PART_BYTES) as u64, part.len() as u64));
        }
    }

    fn random_bytes(&mut self) -> u64 {
        match self.random.below(1000) {
            // Few classes with few blocks per slab: even a short program fills some slabs, so that remote frees send
            // messages.
            0..=899 if cfg!(miri) => self.random.pick(&[2000, 3000, 3000, 12 << 10]),
            0..=899 => 1 + self.random.below(3000),
            900..=989 => self.random.log_uniform(40 << 10),
            990..=997 => self.random.log_uniform(200 << 10),
            _ => self.random.log_uniform(2 << 20),
        }
    }

    fn allocate(&mut self, heap: &mut Heap) {
        let request = Request { zeroed: self.random.per_mille(200), ..Request::plain(self.random_bytes()) };
        let block = self.shared.allocate(heap, request).expect("the arena is large enough");
        let at = self.shared.mem.0.address(block);
        let mut parcel = Parcel { at, bytes: request.bytes as usize, tag: 0 };
        // Compare in parts: each comparison is one step under Miri.
        let zeroed = !request.zeroed || parcel.bytes().chunks(PART_BYTES).all(|part| part == &ZEROS[..part.len()]);
        assert!(zeroed, "{request:?} at {at:p} is not zeroed");
        self.write(&mut parcel);
        self.held.push(parcel);
    }

    fn block_of(&self, parcel: &Parcel) -> hksim_policy::Block<NonNull<u8>> {
        self.shared.mem.0.block_at(parcel.at)
    }

    fn free(&mut self, heap: &mut Heap, parcel: Parcel) {
        self.check(&parcel, parcel.bytes);
        self.shared.free(heap, self.block_of(&parcel));
    }

    fn resize(&mut self, heap: &mut Heap, mut parcel: Parcel) {
        let bytes = self.random_bytes();
        let block = self.shared.resize(heap, self.block_of(&parcel), bytes).expect("the arena is large enough");
        let kept = parcel.bytes.min(bytes as usize);
        (parcel.at, parcel.bytes) = (self.shared.mem.0.address(block), bytes as usize);
        self.check(&parcel, kept);
        self.write(&mut parcel);
        self.held.push(parcel);
    }

    fn any_held(&mut self) -> Option<Parcel> {
        let count = self.held.len() as u64;
        (count > 0).then(|| self.held.swap_remove(self.random.below(count) as usize))
    }

    /// Opens a heap, runs operations on it and closes it. Blocks that are still live at its end are freed through later
    /// heaps of any thread.
    fn live(&mut self, me: usize, operations: u64) {
        let mut heap = self.shared.open_heap().expect("a free heap");
        for _ in 0..operations {
            let parcel = match self.random.below(10) {
                0..=3 if self.held.len() < HELD_MAX => {
                    self.allocate(&mut heap);
                    continue;
                }
                4..=6 => self.exchange.take(me),
                _ => self.any_held(),
            };
            let Some(parcel) = parcel else { continue };
            match self.random.below(10) {
                0..=5 => self.free(&mut heap, parcel),
                6 => self.resize(&mut heap, parcel),
                _ => self.exchange.put(self.random.below(self.exchange.0.len() as u64) as usize, parcel),
            }
        }
        self.shared.validate(&heap).unwrap_or_else(|violation| panic!("at a heap's end: {violation:?}"));
        self.shared.close_heap(heap);
    }

    fn free_rest(&mut self, from: usize) {
        let mut heap = self.shared.open_heap().expect("a free heap");
        while let Some(parcel) = self.exchange.take(from).or_else(|| self.held.pop()) {
            self.free(&mut heap, parcel);
        }
        self.shared.close_heap(heap);
    }
}

/// Runs threads on one allocator; every thread opens `lives` heaps one after the other.
fn stress(policy: Policy, threads: usize, lives: u64, seed: u64) {
    let threads = if cfg!(miri) { threads.min(3) } else { threads };
    let named = format!("seed {seed:#x}, {threads} threads, {policy:?}");
    eprintln!("{named}");
    let geometry = RunGeometry::new(&policy).expect("a valid geometry");
    let layout = if cfg!(miri) { Layout::compact(&geometry, 32 << 20) } else { Layout::new(&geometry, 1 << 30) };
    let layout = layout.with_align(policy.align);
    let memory = MmapMemory::new(layout, Kernel).expect("address space for the arena");
    let shared: Shared = Allocator::new(Jitter::new(memory), geometry, policy, &layout);
    let exchange = Exchange((0..threads).map(|_| Mutex::new(Vec::new())).collect());
    let worker = |me: usize| Worker {
        shared: &shared,
        exchange: &exchange,
        random: Random::new(seed + me as u64),
        held: Vec::new(),
        next_tag: (me as u64) << 32,
    };
    std::thread::scope(|scope| {
        for me in 0..threads {
            let mut worker = worker(me);
            scope.spawn(move || {
                jitter::stumble(seed + 1 + me as u64);
                for _ in 0..lives {
                    let operations = if cfg!(miri) { 40 } else { 20 + worker.random.below(400) };
                    worker.live(me, operations);
                }
                // Threads with even numbers free their remaining blocks; the main thread frees all other blocks.
                if me % 2 == 0 {
                    worker.free_rest(me);
                }
                worker.held.drain(..).for_each(|parcel| worker.exchange.put(me, parcel));
            });
        }
    });
    let mut last = worker(0);
    (0..threads).for_each(|from| last.free_rest(from));
    drain_abandoned(&shared).unwrap();
    let pool = shared.mem.pool();
    assert_eq!((pool.superslabs.get(), pool.huge_superslabs.get()), (0, 0), "SuperSlabs are still in use: {named}");
    assert!(pool.heaps.iter().all(|word| word.get() == 0), "a heap's slot is still taken: {named}");
    if cfg!(miri) {
        std::mem::forget(shared); // Miri cannot unmap memory that it did not map
    }
}

/// Number of heaps that each thread opens one after the other; fewer under Miri.
fn lives(natively: u64) -> u64 {
    if cfg!(miri) { 2 } else { natively * test_scale() }
}

#[test]
fn threads_share_small_superslabs_that_are_purged_without_delay() {
    let policy = Policy {
        huge: Huge::Never,
        purge_delay_ns: 0,
        purge_spans: true,
        cache_superslabs: 1,
        huge_cache_bytes: 0,
        ..SMALL
    };
    stress(policy, 8, lives(15), 0x51);
    stress(Policy { superslab_bytes: 64 << 10, cache_superslabs: 0, ..policy }, 16, lives(8), 0x52);
}

/// Most blocks are freed by a thread that did not allocate them, and heaps close while other threads hold their blocks.
#[test]
#[cfg_attr(miri, ignore = "Miri runs only three threads")]
fn many_threads_share_one_arena() {
    let policy = Policy { huge: Huge::Never, purge_delay_ns: 100_000, purge_spans: true, ..SMALL };
    stress(policy, 64, lives(3), 0x56);
}

#[test]
fn threads_share_an_arena_with_the_default_design() {
    stress(Policy::default(), 8, lives(15), 0x53);
}

#[test]
fn threads_share_an_arena_with_sidecar_headers_and_warm_slabs() {
    let policy = Policy {
        header: Header::Full,
        header_bytes: 16,
        carve: Carve::Eager,
        meta: MetaPlace::Sidecar,
        purge: Purge::Unmap,
        purge_delay_ns: 50_000,
        warm_slabs: 2,
        ..SMALL
    };
    stress(policy, 12, lives(8), 0x54);
}

#[test]
fn threads_share_an_arena_that_is_never_purged() {
    stress(Policy { carve: Carve::Bump, huge: Huge::Never, purge: Purge::None, ..SMALL }, 8, lives(15), 0x55);
}

#[test]
fn threads_share_an_arena_with_front_caches() {
    let policy = Policy { front_cache: 4, huge: Huge::Never, purge_delay_ns: 50_000, ..SMALL };
    stress(policy, 8, lives(15), 0x58);
    stress(Policy { superslab_bytes: 64 << 10, cache_superslabs: 0, front_cache: 1, ..policy }, 12, lives(8), 0x59);
}

#[test]
fn threads_share_superslabs_with_separate_mappings() {
    let policy = Policy {
        huge: Huge::Never,
        align: Align::Trim,
        purge: Purge::Unmap,
        purge_delay_ns: 0,
        cache_superslabs: 1,
        huge_cache_bytes: 0,
        ..SMALL
    };
    stress(policy, 8, lives(8), 0x57);
}

//! Recovery in the child of a fork that interrupts the other threads at every possible access.
//!
//! The tests simulate forks in one process, so that they run under Miri. Each generation has four threads. The main
//! thread forks. One thread has stopped between two calls. Two threads each open a heap, use it and close it; each
//! vanishes at one of the accesses on this path, and locks that it holds stay locked. The main thread then calls [`slots::inherit`], as
//! a real child does, uses all memory, and becomes the parent of the next generation. The tests vary one thread of one
//! generation at a time: in one run after another it vanishes at each of its accesses.

use std::ptr::NonNull;
use std::sync::Mutex;

use hksim_native::{MmapMemory, slots};
use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{Huge, MetaPlace};
use hksim_policy::{Allocator, Memory, Policy, Request, RunGeometry, ThreadHeap};
use hksim_testkit::Random;

use crate::SMALL;
use crate::jitter::{self, Jitter};
use crate::kernel::Kernel;

type Heap = ThreadHeap<Jitter>;

/// SuperSlabs with few slabs, so that most calls change more than one SuperSlab.
const SMALLEST: Policy = Policy {
    superslab_bytes: 64 << 10,
    huge: Huge::Never,
    purge_delay_ns: 0,
    cache_superslabs: 1,
    huge_cache_bytes: 100 << 10,
    ..SMALL
};
/// Small blocks from slabs with few blocks, large blocks and huge blocks.
const SIZES: [u64; 6] = [200, 2000, 2000, 3000, 12 << 10, 70 << 10];
const OPERATIONS: u64 = if cfg!(miri) { 24 } else { 60 };
/// Blocks that a thread allocates to fill its heap.
const BLOCKS: u64 = if cfg!(miri) { 12 } else { 24 };
/// Generations of processes, including the last child.
const GENERATIONS: usize = 3;
/// An access number that no thread reaches.
const NEVER: u64 = 1 << 40;
/// More accesses than a child needs. A child that makes this many waits forever or follows a cyclic list.
const ENDLESS: u64 = 10_000_000;

/// A live block; every byte of it is `tag`.
struct Held {
    at: NonNull<u8>,
    bytes: usize,
    tag: u8,
}

// SAFETY: the block belongs to the holder of this value.
unsafe impl Send for Held {}

impl Held {
    fn check(&self) {
        // SAFETY: the block is live, and only its holder uses it.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) };
        assert!(bytes == vec![self.tag; self.bytes], "a block of {} bytes at {:p} changed", self.bytes, self.at);
    }
}

/// A heap in its slot, where a child finds it.
#[derive(Clone, Copy)]
struct Slot(NonNull<Heap>);

// SAFETY: used by one thread at a time.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// A simulated process.
struct Process {
    allocator: Allocator<Jitter, RunGeometry>,
    held: Mutex<Vec<Held>>,
}

impl Process {
    fn new(policy: Policy) -> Process {
        let geometry = RunGeometry::new(&policy).expect("a valid geometry");
        let layout = Layout::compact(&geometry, 16 << 20);
        let memory = MmapMemory::new(layout, Kernel).expect("address space for the arena");
        Process { allocator: Allocator::new(Jitter::new(memory), geometry, policy, &layout), held: Mutex::default() }
    }

    fn open(&self) -> Slot {
        let nowhere = self.allocator.mem.superslab(0);
        // SAFETY: the slot belongs to this heap.
        let store_empty = |at: NonNull<u8>| unsafe {
            at.cast::<Heap>().write(Heap::empty(nowhere));
            at.cast::<Heap>().as_mut()
        };
        let id = slots::open(&self.allocator, store_empty).expect("a free heap");
        Slot(self.allocator.mem.0.heap_storage(id).cast())
    }

    fn close(&self, mut slot: Slot) {
        // SAFETY: `open` wrote the heap, which belongs to this thread.
        slots::close(&self.allocator, unsafe { slot.0.as_mut() });
    }

    fn allocate(&self, heap: &mut Heap, random: &mut Random) {
        let (bytes, tag) = (random.pick(&SIZES), 1 + random.below(255) as u8);
        let block = self.allocator.allocate(heap, Request::plain(bytes)).expect("the arena is large enough");
        self.hold(self.allocator.mem.0.address(block), bytes, tag);
    }

    fn hold(&self, at: NonNull<u8>, bytes: u64, tag: u8) {
        // SAFETY: the block was just allocated.
        unsafe { at.as_ptr().write_bytes(tag, bytes as usize) };
        self.held.lock().unwrap().push(Held { at, bytes: bytes as usize, tag });
    }

    fn take_any(&self, random: &mut Random) -> Option<Held> {
        let mut held = self.held.lock().unwrap();
        let count = held.len() as u64;
        (count > 0).then(|| held.swap_remove(random.below(count) as usize))
    }

    fn free(&self, heap: &mut Heap, held: &Held) {
        held.check();
        self.allocator.free(heap, self.allocator.mem.0.block_at(held.at));
    }

    fn resize(&self, heap: &mut Heap, held: &Held, random: &mut Random) {
        held.check();
        let bytes = random.pick(&SIZES);
        let block = self.allocator.mem.0.block_at(held.at);
        let block = self.allocator.resize(heap, block, bytes).expect("the arena is large enough");
        self.hold(self.allocator.mem.0.address(block), bytes, held.tag);
    }

    /// Allocates blocks, and resizes and frees blocks of any thread.
    fn work(&self, heap: &mut Heap, random: &mut Random) {
        for _ in 0..OPERATIONS {
            let count = self.held.lock().unwrap().len();
            match (random.below(10), count) {
                (0..=5, _) if count < 60 => self.allocate(heap, random),
                (6, _) => _ = self.take_any(random).map(|held| self.resize(heap, &held, random)),
                _ => _ = self.take_any(random).map(|held| self.free(heap, &held)),
            }
        }
    }

    /// Runs a thread from opening its heap to closing it, or until it vanishes.
    fn live(&self, seed: u64, gone_at: u64) -> Life {
        let whole = || {
            jitter::vanish_at(gone_at);
            let slot = self.open();
            // SAFETY: the heap is this thread's.
            self.work(unsafe { &mut *slot.0.as_ptr() }, &mut Random::new(seed));
            self.close(slot);
            Life { has_ended: true, accesses: jitter::accesses_until_now(gone_at) }
        };
        let life = std::panic::catch_unwind(std::panic::AssertUnwindSafe(whole));
        life.unwrap_or_else(|why| match why.is::<jitter::Vanished>() {
            true => Life { has_ended: false, accesses: gone_at },
            false => std::panic::resume_unwind(why),
        })
    }

    /// The recovery steps of a child. Returns whether a heap or the pool was lost.
    fn inherit(&self, mine: Slot) -> bool {
        let lost_before = self.allocator.mem.0.pool().lost_superslabs.get();
        let heap_at = |id| self.allocator.mem.0.heap_storage(id).cast::<Heap>();
        // SAFETY: this is the only thread now.
        let heaps_lost = unsafe { slots::inherit(&self.allocator, heap_at, [Some(mine.0), None]) };
        heaps_lost > 0 || self.allocator.mem.0.pool().lost_superslabs.get() > lost_before
    }

    /// Continues as the child. Checks that live blocks of all threads are intact, and stay intact while the child
    /// allocates.
    fn go_on(&self, slot: Slot) {
        // SAFETY: this thread's.
        let heap = unsafe { &mut *slot.0.as_ptr() };
        let mut random = Random::new(3);
        (0..2 * BLOCKS).for_each(|_| self.allocate(heap, &mut random));
        while let Some(held) = self.take_any(&mut random) {
            self.free(heap, &held);
        }
        self.allocator.validate(heap).unwrap_or_else(|violation| panic!("in the child: {violation:?}"));
    }

    /// Adopts all abandoned SuperSlabs, so that only those with live blocks stay in use.
    fn adopt_all(&self) {
        let slot = self.open();
        // SAFETY: this thread's.
        let heap = unsafe { &mut *slot.0.as_ptr() };
        let mut blocks = Vec::new();
        while self.allocator.mem.pool().abandoned.count.get() > 0 {
            blocks.push(self.allocator.allocate(heap, Request::plain(12 << 10)).expect("room"));
        }
        blocks.into_iter().for_each(|block| self.allocator.free(heap, block));
        self.close(slot);
    }
}

/// How a thread ended, and after how many accesses.
#[derive(Clone, Copy)]
struct Life {
    has_ended: bool,
    accesses: u64,
}

/// The accesses at which the two threads of a generation vanish.
type Met = [u64; 2];

/// One generation: threads run, the process forks, and the child recovers and uses all memory. Returns the results of
/// the threads, and whether anything was lost.
fn fork_once(process: &Process, mine: Slot, generation: usize, met: Met) -> ([Life; 2], bool) {
    let fill = |slot: Slot| {
        // SAFETY: only one thread at a time uses the heap.
        (0..BLOCKS).for_each(|seed| process.allocate(unsafe { &mut *slot.0.as_ptr() }, &mut Random::new(seed)));
    };
    let stopped = process.open();
    fill(mine);
    std::thread::scope(|scope| scope.spawn(|| fill(stopped)).join().unwrap());
    let lives = [0, 1].map(|thread| {
        let seed = (2 * generation + thread) as u64 + 2;
        std::thread::scope(|scope| scope.spawn(|| process.live(seed, met[thread])).join().unwrap())
    });
    jitter::vanish_at(ENDLESS);
    let is_lost = process.inherit(mine);
    process.go_on(mine);
    jitter::accesses_until_now(ENDLESS);
    (lives, is_lost)
}

/// Runs all generations. Returns the results of the threads by generation, and whether anything was lost.
fn fork_at(policy: Policy, met: [Met; GENERATIONS]) -> ([[Life; 2]; GENERATIONS], bool) {
    let process = Process::new(policy);
    let mine = process.open();
    let mut is_lost = false;
    let lives = std::array::from_fn(|generation| {
        let (lives, lost) = fork_once(&process, mine, generation, met[generation]);
        is_lost |= lost;
        lives
    });
    if !is_lost {
        process.close(mine);
        process.adopt_all();
        let pool = process.allocator.mem.pool();
        let (superslabs, huge) = (pool.superslabs.get(), pool.huge_superslabs.get());
        // A vanished thread may leak the block that it was allocating or freeing, or two if it was resizing.
        let gone = lives.iter().flatten().filter(|life| !life.has_ended).count() as u32;
        assert!(superslabs <= 2 * gone && huge <= 4 * gone, "{met:?}: {superslabs} and {huge} superslabs in use");
    }
    (lives, is_lost)
}

/// Runs forks in which one thread of one generation vanishes at each access in turn, or at every `step`th access. The
/// other threads vanish at a random access or never.
fn fork_everywhere(name: &str, policy: Policy, step: usize) {
    let (whole, is_lost) = fork_at(policy, [[NEVER; 2]; GENERATIONS]);
    assert!(!is_lost, "no thread was interrupted on a slow path");
    let mut random = Random::new(5);
    for generation in 0..GENERATIONS {
        let accesses = whole[generation][0].accesses;
        let step = if cfg!(miri) { accesses as usize / 4 } else { step };
        let mut losses = 0;
        for access in (0..accesses).step_by(step) {
            let mut any_or_none = |life: Life| if random.below(2) == 0 { NEVER } else { random.below(life.accesses) };
            let mut met = whole.map(|lives| lives.map(&mut any_or_none));
            met[generation][0] = access;
            let run = || fork_at(policy, met).1;
            let run = std::panic::catch_unwind(run);
            losses += usize::from(run.unwrap_or_else(|_| panic!("{name}: recovery failed after the forks at {met:?}")));
        }
        eprintln!(
            "{name}: fork {generation}, every {step}th of {accesses} accesses; {losses} runs lost a heap or the pool"
        );
        let forks = accesses as usize / step;
        assert!(cfg!(miri) || (losses > 20 && losses < forks), "{losses} of {forks} forks lost a heap or the pool");
    }
}

#[test]
fn children_recover_wherever_the_fork_interrupts_threads() {
    fork_everywhere("inband", SMALLEST, 1);
    fork_everywhere("sidecar", Policy { meta: MetaPlace::Sidecar, ..SMALLEST }, 5);
    fork_everywhere("front cache", Policy { front_cache: 3, ..SMALLEST }, 3);
}

//! Model checking with loom: remote frees, messages, closing heaps and adoption. A test covers every interleaving of a
//! few threads' accesses to shared words, with every value that the memory model allows.
//!
//! The tests run the allocator itself, on a memory whose words, lock and links are loom's. Executions differ in which
//! thread runs after each access to a shared word; `LOOM_MAX_PREEMPTIONS` limits the preemptions. At the end of each
//! execution all blocks are freed, and no memory may be in use.

// loom's coroutines switch stacks in assembly, which Miri cannot run.
#![cfg(not(miri))]

mod world;

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use hksim_policy::memory::{Block, Memory};
use hksim_policy::vocabulary::{Carve, Huge};
use hksim_policy::{Allocator, Policy, Request, RunGeometry, ThreadHeap};
use hksim_testkit::drain_abandoned;
use loom::thread;
use world::{Flaw, LoomMemory, Sound, TornSwap, Unordered};

/// SuperSlabs of four slices; slabs of six to eight blocks of 2 KiB.
fn policy() -> Policy {
    Policy {
        superslab_bytes: 64 << 10,
        slab_bytes: 16 << 10,
        carve: Carve::Eager,
        huge: Huge::Never,
        purge_delay_ns: 0,
        cache_superslabs: 1,
        ..Policy::default()
    }
}

const SMALL: u64 = 2048;
/// Blocks of [`SMALL`] in the first slab of a SuperSlab, whose first page is metadata.
const IN_FIRST_SLAB: usize = 6;
const IN_OTHER_SLABS: usize = 8;
/// A large block.
const LARGE: u64 = 12 << 10;
const PREEMPTIONS: usize = 2;
const STACK_WORDS: usize = 64 << 10;

type Heap<F> = ThreadHeap<LoomMemory<F>>;

/// An allocator and the live blocks of the program.
struct Program<F: Flaw> {
    allocator: Allocator<LoomMemory<F>, RunGeometry>,
    live: RefCell<HashSet<u64>>,
}

impl<F: Flaw> Program<F> {
    fn new() -> Rc<Program<F>> {
        Program::with(policy())
    }

    fn with(policy: Policy) -> Rc<Program<F>> {
        let (memory, geometry, layout) = LoomMemory::new(&policy, 3);
        Rc::new(Program { allocator: Allocator::new(memory, geometry, policy, &layout), live: RefCell::default() })
    }

    fn open(&self) -> Heap<F> {
        self.allocator.open_heap().expect("a free heap")
    }

    fn allocate(&self, heap: &mut Heap<F>, bytes: u64) -> Block<u32> {
        let block = self.allocator.allocate(heap, Request::plain(bytes)).expect("the arena is large enough");
        let place = self.allocator.mem.place(block);
        assert!(self.live.borrow_mut().insert(place), "a live block at {place:#x} is allocated again");
        self.allocator.mem.use_block(block);
        block
    }

    fn allocate_many(&self, heap: &mut Heap<F>, count: usize, bytes: u64) -> Vec<Block<u32>> {
        (0..count).map(|_| self.allocate(heap, bytes)).collect()
    }

    fn free(&self, heap: &mut Heap<F>, block: Block<u32>) {
        self.allocator.mem.use_block(block);
        assert!(self.live.borrow_mut().remove(&self.allocator.mem.place(block)), "the program frees a block twice");
        self.allocator.free(heap, block);
    }

    fn close(&self, heap: Heap<F>) {
        self.allocator.validate(&heap).unwrap_or_else(|violation| panic!("{violation:?}"));
        self.allocator.close_heap(heap);
    }

    /// Frees the remaining blocks and asserts that no memory is in use.
    fn end(&self, blocks: impl IntoIterator<Item = Block<u32>>) {
        let mut heap = self.open();
        blocks.into_iter().for_each(|block| self.free(&mut heap, block));
        self.close(heap);
        assert!(self.live.borrow().is_empty(), "the test did not free all blocks");
        drain_abandoned(&self.allocator).unwrap();
        let pool = self.allocator.mem.pool();
        assert_eq!((pool.superslabs.get(), pool.huge_superslabs.get()), (0, 0), "SuperSlabs are still in use");
        assert!(pool.heaps.iter().all(|word| word.get() == 0), "a heap's slot is still taken");
    }
}

/// Opens a heap, and starts a thread that runs `part` with it and closes it. The thread returns the blocks that it
/// leaves live.
fn spawn<F: Flaw>(
    program: &Rc<Program<F>>,
    part: impl FnOnce(&Program<F>, &mut Heap<F>) -> Vec<Block<u32>> + 'static,
) -> thread::JoinHandle<Vec<Block<u32>>> {
    let (program, mut heap) = (program.clone(), program.open());
    start(move || {
        let left = part(&program, &mut heap);
        program.close(heap);
        left
    })
}

/// A value that one loom thread passes to another.
struct Sent<T>(T);

// SAFETY: loom's threads are coroutines of one thread.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Starts a thread. A heap is larger than the stack that loom gives its threads by default.
fn start(work: impl FnOnce() -> Vec<Block<u32>> + 'static) -> thread::JoinHandle<Vec<Block<u32>>> {
    let work = Sent(work);
    let builder = thread::Builder::new().stack_size(STACK_WORDS);
    builder.spawn(move || work.take()()).expect("loom starts a thread")
}

fn model(name: &str, run: fn()) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let executions = std::sync::Arc::new(AtomicU64::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.max_branches = 20_000;
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        start(move || {
            run();
            Vec::new()
        })
        .join()
        .unwrap();
    });
    eprintln!("{name}: {} executions", executions.load(Ordering::Relaxed));
}

/// Two threads free into a full slab while its owner, with an empty bin, handles messages.
fn two_threads_free_into_a_full_slab<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let mut blocks = program.allocate_many(&mut heap, IN_FIRST_SLAB + 1, SMALL);
    let (second, first) = (blocks.remove(1), blocks.remove(0));
    let threads = [first, second].map(|block| {
        spawn(&program, move |program, heap| {
            program.free(heap, block);
            Vec::new()
        })
    });
    // The second slab has free blocks for all of these but the last.
    blocks.extend(program.allocate_many(&mut heap, IN_OTHER_SLABS, SMALL));
    threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_empty()));
    program.close(heap);
    program.end(blocks);
}

/// Messages about two slabs arrive while their owner closes its heap.
fn two_messages_arrive_concurrently<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let mut blocks = program.allocate_many(&mut heap, IN_FIRST_SLAB + IN_OTHER_SLABS + 1, SMALL);
    let (second, first) = (blocks.remove(IN_FIRST_SLAB), blocks.remove(0));
    let threads = [first, second].map(|block| {
        spawn(&program, move |program, heap| {
            program.free(heap, block);
            Vec::new()
        })
    });
    program.close(heap);
    threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_empty()));
    program.end(blocks);
}

/// The active slab has no free block left, and may become full, while another thread frees into it.
fn a_slab_becomes_full_while_a_block_returns<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let mut blocks = program.allocate_many(&mut heap, IN_FIRST_SLAB, SMALL);
    let returned = [blocks.remove(0), blocks.remove(0)];
    let thread = spawn(&program, move |program, heap| {
        returned.into_iter().for_each(|block| program.free(heap, block));
        Vec::new()
    });
    blocks.extend(program.allocate_many(&mut heap, 2, SMALL));
    // The owner's own frees are local. Either thread may make the slab's last free.
    blocks.drain(..).for_each(|block| program.free(&mut heap, block));
    thread.join().unwrap();
    program.close(heap);
    program.end(None);
}

/// The owner's own free lists a full slab again. The slab then becomes full again while another thread frees into it.
/// `FULL` stays set throughout, so the first message may be stale.
fn a_slab_becomes_full_again_while_a_block_returns<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let mut blocks = program.allocate_many(&mut heap, IN_FIRST_SLAB + 1, SMALL);
    let (second, first, own) = (blocks.remove(2), blocks.remove(1), blocks.remove(0));
    program.free(&mut heap, own);
    let thread = spawn(&program, move |program, heap| {
        [first, second].into_iter().for_each(|block| program.free(heap, block));
        Vec::new()
    });
    // The rest of the second slab, the block that the owner freed, and one more, which may also be from the first slab.
    blocks.extend(program.allocate_many(&mut heap, IN_OTHER_SLABS + 1, SMALL));
    program.allocator.validate(&heap).unwrap_or_else(|violation| panic!("{violation:?}"));
    thread.join().unwrap();
    program.close(heap);
    program.end(blocks);
}

/// A thread exits while a second thread frees one of its blocks and a third allocates.
fn an_owner_leaves_while_others_free_and_adopt<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let mut blocks = program.allocate_many(&mut heap, IN_FIRST_SLAB + 1, SMALL);
    let returned = blocks.remove(0);
    let frees = spawn(&program, move |program, heap| {
        program.free(heap, returned);
        Vec::new()
    });
    let adopts = spawn(&program, |program, heap| vec![program.allocate(heap, SMALL)]);
    program.close(heap);
    assert!(frees.join().unwrap().is_empty());
    blocks.extend(adopts.join().unwrap());
    program.end(blocks);
}

/// A large span is full from the start, so every free by another thread sends a message.
fn a_large_block_is_freed_while_its_owner_leaves<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let large = program.allocate(&mut heap, LARGE);
    let blocks = program.allocate_many(&mut heap, 1, SMALL);
    let frees = spawn(&program, move |program, heap| {
        program.free(heap, large);
        Vec::new()
    });
    let adopts = spawn(&program, move |program, heap| {
        let own = program.allocate(heap, SMALL);
        blocks.into_iter().for_each(|block| program.free(heap, block));
        vec![own]
    });
    program.close(heap);
    assert!(frees.join().unwrap().is_empty());
    program.end(adopts.join().unwrap());
}

/// One thread frees all blocks of an abandoned SuperSlab while another thread adopts the SuperSlab.
fn an_abandoned_superslab_empties_while_it_is_adopted<F: Flaw>() {
    let program = Program::<F>::new();
    let mut heap = program.open();
    let blocks = program.allocate_many(&mut heap, 2, SMALL);
    let large = program.allocate(&mut heap, LARGE);
    program.close(heap);
    let frees = spawn(&program, move |program, heap| {
        program.free(heap, large);
        blocks.into_iter().for_each(|block| program.free(heap, block));
        Vec::new()
    });
    let adopts = spawn(&program, |program, heap| {
        let own = program.allocate(heap, SMALL);
        program.free(heap, own);
        vec![program.allocate(heap, LARGE)]
    });
    assert!(frees.join().unwrap().is_empty());
    program.end(adopts.join().unwrap());
}

/// Two threads exit while each has a block of the other's slab in its front cache.
fn front_caches_return_blocks_while_their_owners_leave<F: Flaw>() {
    let program = Program::<F>::with(Policy { front_cache: 1, ..policy() });
    let (mut one, mut other) = (program.open(), program.open());
    let (of_one, of_other) = (program.allocate(&mut one, SMALL), program.allocate(&mut other, SMALL));
    program.free(&mut one, of_other);
    program.free(&mut other, of_one);
    let threads = [one, other].map(|heap| {
        let (program, heap) = (program.clone(), Sent(heap));
        start(move || {
            program.close(heap.take());
            Vec::new()
        })
    });
    threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_empty()));
    program.end(None);
}

#[test]
fn no_interleaving_breaks_front_caches() {
    model("front caches", front_caches_return_blocks_while_their_owners_leave::<Sound>);
}

#[test]
fn no_interleaving_breaks_messages() {
    model("two threads free into a full slab", two_threads_free_into_a_full_slab::<Sound>);
    model("two messages", two_messages_arrive_concurrently::<Sound>);
}

#[test]
fn no_interleaving_breaks_a_slab_that_becomes_full() {
    model("a slab becomes full", a_slab_becomes_full_while_a_block_returns::<Sound>);
    model("a slab becomes full again", a_slab_becomes_full_again_while_a_block_returns::<Sound>);
}

#[test]
fn no_interleaving_breaks_a_heap_that_closes() {
    model("an owner leaves", an_owner_leaves_while_others_free_and_adopt::<Sound>);
}

#[test]
fn no_interleaving_breaks_a_large_block() {
    model("a large block", a_large_block_is_freed_while_its_owner_leaves::<Sound>);
}

#[test]
fn no_interleaving_breaks_an_adoption() {
    model("an adoption", an_abandoned_superslab_empties_while_it_is_adopted::<Sound>);
}

/// With relaxed orderings only, loom must find unordered accesses to a block.
#[test]
#[should_panic = "Causality violation"]
fn missing_orderings_are_detected() {
    model("unordered words", two_threads_free_into_a_full_slab::<Unordered>);
}

/// If swaps lose messages, the test must fail: memory stays in use, or a wait never ends.
#[test]
#[should_panic]
fn lost_messages_are_detected() {
    model("torn swaps", two_messages_arrive_concurrently::<TornSwap>);
}

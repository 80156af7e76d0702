//! Every interleaving of a few threads at every word they share, with every value that the memory model lets a thread
//! read, by loom: frees by other threads, mail, heaps that close, SuperSlabs that are adopted.
//!
//! It is the allocator itself that runs, in a memory whose words, lock and links loom watches. Executions differ in the
//! thread that goes on at each shared word, with so many changes of thread against its will as `LOOM_MAX_PREEMPTIONS`
//! says. After each, all blocks are freed and all memory must have come back.

// Its coroutines switch stacks by machine code.
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
use world::{Flaw, LoomMemory, Sound, Torn, Unordered};

/// SuperSlabs of four slices, slabs of six to eight blocks of 2 KiB.
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
/// A large block, of a span of its own.
const LARGE: u64 = 12 << 10;
const PREEMPTIONS: usize = 2;
const STACK_WORDS: usize = 64 << 10;

type Heap<F> = ThreadHeap<LoomMemory<F>>;

/// An allocator, and which blocks the program holds.
struct Program<F: Flaw> {
    allocator: Allocator<LoomMemory<F>, RunGeometry>,
    live: RefCell<HashSet<u64>>,
}

impl<F: Flaw> Program<F> {
    fn new() -> Rc<Program<F>> {
        let (memory, geometry, layout) = LoomMemory::new(&policy(), 3);
        Rc::new(Program { allocator: Allocator::new(memory, geometry, policy(), &layout), live: RefCell::default() })
    }

    fn open(&self) -> Heap<F> {
        self.allocator.open_heap().expect("a free heap")
    }

    fn allocate(&self, heap: &mut Heap<F>, bytes: u64) -> Block<u32> {
        let block = self.allocator.allocate(heap, Request::plain(bytes)).expect("the arena is large enough");
        let place = self.allocator.mem.place(block);
        assert!(self.live.borrow_mut().insert(place), "a live block at {place:#x} is handed out again");
        self.allocator.mem.use_block(block);
        block
    }

    fn allocate_many(&self, heap: &mut Heap<F>, count: usize, bytes: u64) -> Vec<Block<u32>> {
        (0..count).map(|_| self.allocate(heap, bytes)).collect()
    }

    fn free(&self, heap: &mut Heap<F>, block: Block<u32>) {
        self.allocator.mem.use_block(block);
        assert!(self.live.borrow_mut().remove(&self.allocator.mem.place(block)), "the program freed it twice");
        self.allocator.free(heap, block);
    }

    fn close(&self, heap: Heap<F>) {
        self.allocator.validate(&heap).unwrap_or_else(|violation| panic!("{violation:?}"));
        self.allocator.close_heap(heap);
    }

    /// Frees what is left, and holds that all memory came back.
    fn end(&self, blocks: impl IntoIterator<Item = Block<u32>>) {
        let mut heap = self.open();
        blocks.into_iter().for_each(|block| self.free(&mut heap, block));
        self.close(heap);
        assert!(self.live.borrow().is_empty(), "this test forgot a block");
        drain_abandoned(&self.allocator).unwrap();
        let pool = self.allocator.mem.pool();
        assert_eq!((pool.superslabs.get(), pool.huge_superslabs.get()), (0, 0), "something is still in use");
        assert!(pool.heaps.iter().all(|word| word.get() == 0), "a heap's slot is still taken");
    }
}

/// Starts a thread that does its part with a heap of its own, and closes it.
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

/// What goes from one of loom's threads to another.
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
    builder.spawn(move || work.take()()).expect("a thread of loom's")
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

/// Two threads free into a slab in no list; its owner, whose bin is dry, looks into its mail meanwhile.
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
    // The slab in use has blocks for all but the last of these.
    blocks.extend(program.allocate_many(&mut heap, IN_OTHER_SLABS, SMALL));
    threads.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_empty()));
    program.close(heap);
    program.end(blocks);
}

/// Letters about two slabs, while their owner reads its mail.
fn two_letters_come_at_once<F: Flaw>() {
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

/// The active slab runs dry, and becomes full or not, while another thread frees into it.
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
    // What the owner frees itself goes the local way, and the last free of a slab may be anybody's.
    blocks.drain(..).for_each(|block| program.free(&mut heap, block));
    thread.join().unwrap();
    program.close(heap);
    program.end(None);
}

/// A slab that was full is in a list again, through its owner's own free, and becomes full once more while another thread
/// frees into it. Its word says all the time that it is full, so the first letter is stale or not.
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
    // The rest of the second slab, the one block of the first, and one that the first has or has not.
    blocks.extend(program.allocate_many(&mut heap, IN_OTHER_SLABS + 1, SMALL));
    program.allocator.validate(&heap).unwrap_or_else(|violation| panic!("{violation:?}"));
    thread.join().unwrap();
    program.close(heap);
    program.end(blocks);
}

/// A thread ends while another frees its blocks and a third looks for memory.
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

/// A large block is a slab of one block: full from its birth, so every free of it by another thread is a letter.
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

/// All blocks of an abandoned SuperSlab are freed by one thread while another adopts it.
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

#[test]
fn no_interleaving_breaks_mail() {
    model("two threads free into a full slab", two_threads_free_into_a_full_slab::<Sound>);
    model("two letters", two_letters_come_at_once::<Sound>);
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

/// The watch sees what it is there to see: accesses to a block that nothing orders.
#[test]
#[should_panic = "Causality violation"]
fn words_that_order_nothing_are_found_out() {
    model("unordered words", two_threads_free_into_a_full_slab::<Unordered>);
}

/// So does the count at the end: a letter that is lost is memory that never comes back, or a wait without end.
#[test]
#[should_panic]
fn swaps_that_lose_letters_are_found_out() {
    model("torn swaps", two_letters_come_at_once::<Torn>);
}

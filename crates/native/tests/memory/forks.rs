//! What the child of a fork does with the heaps of threads that it does not have, wherever the fork met them.
//!
//! Played in one process, so that Miri sees it: one thread is gone at each of its accesses in turn, with whatever it held;
//! another one has stopped between two calls; the main thread then takes the steps of `process/fork.rs`, in their order.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use hksim_native::MmapMemory;
use hksim_policy::geometry::Shape;
use hksim_policy::layout::Layout;
use hksim_policy::options::{Huge, MetaPlace, Options};
use hksim_policy::{Allocator, Memory, Request, RunGeometry, ThreadHeap};
use hksim_testkit::Random;

use crate::SMALL;
use crate::jitter::{self, Jitter};
use crate::kernel::Kernel;

type Heap = ThreadHeap<Jitter>;

/// Few slabs in a SuperSlab, too: most calls change more than one.
const SMALLEST: Shape = Shape { superslab_bytes: 64 << 10, ..SMALL };
/// Small, of slabs that soon are full; large; huge.
const SIZES: [u64; 6] = [200, 2000, 2000, 3000, 12 << 10, 70 << 10];
const OPERATIONS: u64 = if cfg!(miri) { 24 } else { 60 };
/// What the others have.
const BLOCKS: u64 = if cfg!(miri) { 12 } else { 24 };
/// The mark of a heap that is neither being opened nor being closed.
const OPEN: u32 = 1;

/// A live block; every byte of it is `tag`.
struct Held {
    at: NonNull<u8>,
    bytes: usize,
    tag: u8,
}

// SAFETY: whoever has it has the block.
unsafe impl Send for Held {}

impl Held {
    fn check(&self) {
        // SAFETY: the block is live, and its holder's alone.
        let bytes = unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) };
        assert!(bytes == vec![self.tag; self.bytes], "a block of {} bytes at {:p} changed", self.bytes, self.at);
    }
}

/// A heap in its slot's own map, where a child finds it.
#[derive(Clone, Copy)]
struct Slot(NonNull<Heap>);

// SAFETY: used by one thread at a time.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// A process.
struct Process {
    allocator: Allocator<Jitter, RunGeometry>,
    held: Mutex<Vec<Held>>,
}

impl Process {
    fn new(meta_place: MetaPlace) -> Process {
        let geometry = RunGeometry::new(Shape { meta_place, ..SMALLEST }).expect("a legal shape");
        let layout = Layout::compact(&geometry, 4 << 20);
        let options = Options {
            huge: Huge::Never,
            purge_delay_ns: 0,
            cache_superslabs: 1,
            huge_cache_bytes: 100 << 10,
            ..Options::default()
        };
        let memory = MmapMemory::new(layout, Kernel).expect("address space for the arena");
        Process { allocator: Allocator::new(Jitter(memory), geometry, options, &layout), held: Mutex::default() }
    }

    fn open(&self) -> Slot {
        let heap = self.allocator.open_heap().expect("a free heap");
        let (id, memory) = (heap.id(), &self.allocator.mem.0);
        let at = memory.heap_storage(id).cast::<Heap>();
        // SAFETY: the slot's map is this heap's.
        unsafe { at.write(heap) };
        memory.heap_mark(id).store(OPEN, Ordering::Release);
        Slot(at)
    }

    fn close(&self, slot: Slot) {
        // SAFETY: `open` wrote it, and this is its thread.
        let heap = unsafe { slot.0.read() };
        self.allocator.mem.0.heap_mark(heap.id()).store(0, Ordering::Release);
        self.allocator.close_heap(heap);
    }

    fn allocate(&self, heap: &mut Heap, random: &mut Random) {
        let (bytes, tag) = (random.pick(&SIZES), 1 + random.below(255) as u8);
        let block = self.allocator.allocate(heap, Request::plain(bytes)).expect("the arena is large enough");
        self.hold(self.allocator.mem.0.address(block), bytes, tag);
    }

    fn hold(&self, at: NonNull<u8>, bytes: u64, tag: u8) {
        // SAFETY: the block was just handed out.
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

    /// Allocates, and frees what any thread allocated.
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

    /// The whole life of a thread, or as much of it as the fork leaves. Returns whether it came to its end.
    fn live(&self, slot: Slot, gone_at: u64) -> (bool, u64) {
        let whole = || {
            jitter::vanish_at(gone_at);
            // SAFETY: the heap is this thread's.
            self.work(unsafe { &mut *slot.0.as_ptr() }, &mut Random::new(2));
            self.close(slot);
            jitter::accesses_until_now(gone_at)
        };
        let life = std::panic::catch_unwind(std::panic::AssertUnwindSafe(whole));
        life.map_or_else(
            |why| if why.is::<jitter::Vanished>() { (false, gone_at) } else { std::panic::resume_unwind(why) },
            |accesses| (true, accesses),
        )
    }

    /// The steps of a child. Returns whether something that threads were in the middle of is lost.
    fn inherit(&self, mine: Slot) -> bool {
        let memory = &self.allocator.mem.0;
        // SAFETY: this is the only thread, and it does not hold the lock.
        let pool_was_held = unsafe { memory.renew_lock() };
        if pool_was_held {
            self.allocator.salvage_pool();
        }
        let mut heaps_lost = 0;
        for id in (0..memory.heaps()).filter(|&id| self.allocator.is_open(id)) {
            let at = memory.heap_storage(id).cast::<Heap>();
            if at == mine.0 {
                continue;
            }
            let is_whole = memory.heap_mark(id).load(Ordering::Acquire) == OPEN;
            // SAFETY: written before the mark was; its thread is gone.
            match is_whole.then(|| unsafe { at.read() }).filter(Heap::is_settled) {
                Some(heap) => self.allocator.close_orphan(heap),
                None => heaps_lost += 1,
            }
        }
        // SAFETY: this thread's.
        self.allocator.recover_heap(unsafe { &mut *mine.0.as_ptr() });
        pool_was_held || heaps_lost > 0
    }

    /// The child goes on: what all threads held is as it was, and stays so whatever is allocated.
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

    /// Takes everything that was abandoned into use, so that of it only SuperSlabs with live blocks stay.
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

/// A process forks when one of its threads is at the access with this number. Returns how many accesses that one made.
fn fork_at(meta_place: MetaPlace, access: u64) -> (bool, u64) {
    let process = Process::new(meta_place);
    let [mine, stopped, going] = [(); 3].map(|()| process.open());
    let fill = |slot: Slot| {
        // SAFETY: one thread at a time has it.
        (0..BLOCKS).for_each(|seed| process.allocate(unsafe { &mut *slot.0.as_ptr() }, &mut Random::new(seed)));
    };
    fill(mine);
    std::thread::scope(|scope| scope.spawn(|| fill(stopped)).join().unwrap());
    let (ended, accesses) = std::thread::scope(|scope| scope.spawn(|| process.live(going, access)).join().unwrap());
    let is_lost = process.inherit(mine);
    process.go_on(mine);
    if !is_lost {
        process.close(mine);
        process.adopt_all();
        let pool = process.allocator.mem.pool();
        let (superslabs, huge) = (pool.superslabs.get(), pool.huge_superslabs.get());
        // A block on its way to or from the thread that is gone; two, if it was resizing.
        let lost = if ended { (0, 0) } else { (2, 4) };
        assert!(superslabs <= lost.0 && huge <= lost.1, "access {access}: {superslabs} and {huge} superslabs in use");
    }
    (is_lost, accesses)
}

fn fork_everywhere(meta_place: MetaPlace) {
    let (is_lost, accesses) = fork_at(meta_place, 1 << 40);
    assert!(!is_lost, "nobody was in the middle of anything");
    let step = if cfg!(miri) { accesses / 6 } else { 1 } as usize;
    let losses = (0..accesses).step_by(step).filter(|&access| fork_at(meta_place, access).0).count();
    eprintln!(
        "{meta_place:?}: {accesses} accesses, every {step} met by a fork, {losses} of which lost a heap or the pool"
    );
    assert!(
        cfg!(miri) || (losses > 20 && losses < accesses as usize - 20),
        "{losses} of {accesses} forks lost something"
    );
}

#[test]
fn a_child_goes_on_wherever_the_fork_met_a_thread() {
    fork_everywhere(MetaPlace::InBand);
    fork_everywhere(MetaPlace::Sidecar);
}

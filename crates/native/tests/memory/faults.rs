//! Fault injection: in each run of a program, one system call fails, a different call in each run. At most one request
//! fails, and the heap stays usable.

use std::cell::Cell;
use std::ptr::NonNull;

use hksim_native::config::NativeConfig;
use hksim_native::{MmapMemory, Os};
use hksim_policy::layout::Layout;
use hksim_policy::memory::{Advice, Mapping};
use hksim_policy::{Allocator, Errno, Memory, Request, RunGeometry, ThreadHeap};
use hksim_testkit::Random;

use crate::kernel::Kernel;

/// The kernel, with one failing call.
struct Faulty {
    calls: Cell<u64>,
    /// The number of the call that fails.
    refused: u64,
}

impl Faulty {
    fn call<T>(&self, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let number = self.calls.replace(self.calls.get() + 1);
        if number == self.refused { Err(Errno(12)) } else { work() }
    }
}

impl Os for Faulty {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        self.call(|| unsafe { Kernel.map(at, bytes, mapping) })
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        self.call(|| Kernel.map_anywhere(bytes, mapping))
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        self.call(|| unsafe { Kernel.unmap(at, bytes) })
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        self.call(|| unsafe { Kernel.advise(at, bytes, advice) })
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        self.call(|| unsafe { Kernel.remap(from, bytes, to) })
    }

    fn now_ns(&self) -> u64 {
        // The clock advances with every call, so that repeated runs make the same calls.
        self.calls.get()
    }
}

/// Distance between the bytes of a block that are checked. The last byte is always checked.
const CHECKED_STEP: usize = if cfg!(miri) { 32_749 } else { 509 };
const STEPS: u64 = if cfg!(miri) { 40 } else { 400 };
/// Under Miri, checking every link of every slab takes seconds.
const VALIDATE_EVERY: u64 = if cfg!(miri) { STEPS } else { 1 };
/// Approximate number of runs, each with one failing call, for each policy.
const REFUSED_CALLS: u64 = if cfg!(miri) { 2 } else { 150 };

type World = MmapMemory<Faulty>;

/// A program with its blocks, each filled with the block's tag byte.
struct Program {
    allocator: Allocator<World, RunGeometry>,
    heap: ThreadHeap<World>,
    blocks: Vec<(NonNull<u8>, usize, u8)>,
    refused: u64,
}

impl Program {
    fn new(policy: &str, refused: u64) -> Program {
        let policy = NativeConfig::read(policy).expect("a policy").policy;
        let geometry = RunGeometry::new(&policy).expect("a valid geometry");
        // Under Miri, every program allocates the whole arena and never frees it.
        let arena_bytes = if cfg!(miri) { policy.arena_bytes / 4 } else { policy.arena_bytes };
        let layout = Layout::new(&geometry, arena_bytes);
        let memory = World::new(layout, Faulty { calls: Cell::new(0), refused }).expect("address space");
        let allocator = Allocator::new(memory, geometry, policy, &layout);
        let heap = allocator.open_heap().expect("a heap");
        Program { allocator, heap, blocks: Vec::new(), refused: 0 }
    }

    fn fill(&mut self, at: NonNull<u8>, bytes: usize, tag: u8) {
        // SAFETY: a block that was just allocated has that many bytes.
        unsafe { at.as_ptr().write_bytes(tag, bytes) };
        self.blocks.push((at, bytes, tag));
    }

    /// Checks the bytes of a block and removes it from the program's blocks.
    fn take(&mut self, index: usize) -> (NonNull<u8>, usize, u8) {
        let (at, bytes, tag) = self.blocks.swap_remove(index);
        // SAFETY: the program holds the block and has filled it.
        let holds = unsafe { std::slice::from_raw_parts(at.as_ptr(), bytes) };
        assert!(
            holds.iter().step_by(CHECKED_STEP).chain(holds.last()).all(|&byte| byte == tag),
            "a block of {bytes} bytes was changed"
        );
        (at, bytes, tag)
    }

    fn step(&mut self, random: &mut Random) {
        let most = random.pick(&[64, 2_000, 60_000, 700_000, 5_000_000]);
        // Under Miri, a short program must also make many calls and move huge blocks.
        let bytes = if cfg!(miri) { most - random.below(most / 2) } else { random.log_uniform(most) + 1 } as usize;
        let tag = random.pick(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let index = (!self.blocks.is_empty()).then(|| random.below(self.blocks.len() as u64) as usize);
        let kinds = if cfg!(miri) { [0, 0, 1, 2, 2, 2] } else { [0, 0, 0, 1, 1, 2] };
        match (random.pick(&kinds), index) {
            (1, Some(index)) => {
                let (at, ..) = self.take(index);
                self.allocator.free(&mut self.heap, self.allocator.mem.block_at(at));
            }
            (2, Some(index)) => {
                let (at, old_bytes, old_tag) = self.take(index);
                let block = self.allocator.mem.block_at(at);
                match self.allocator.resize(&mut self.heap, block, bytes as u64) {
                    Some(block) => self.fill(self.allocator.mem.address(block), bytes, tag),
                    None => {
                        self.refused += 1;
                        self.blocks.push((at, old_bytes, old_tag));
                    }
                }
            }
            _ => match self.allocator.allocate(&mut self.heap, Request::plain(bytes as u64)) {
                Some(block) => self.fill(self.allocator.mem.address(block), bytes, tag),
                None => self.refused += 1,
            },
        }
    }

    fn validate(&self) {
        self.allocator.validate(&self.heap).expect("a valid heap");
    }

    /// Frees all blocks and asserts that no memory is in use. Returns the numbers of system calls and of failed
    /// requests.
    fn end(mut self) -> (u64, u64) {
        while !self.blocks.is_empty() {
            let (at, ..) = self.take(0);
            self.allocator.free(&mut self.heap, self.allocator.mem.block_at(at));
        }
        assert!(self.allocator.allocate(&mut self.heap, Request::plain(100)).is_some(), "the heap can be used");
        self.allocator.close_heap(self.heap);
        // The block of 100 bytes is still live.
        let pool = self.allocator.mem.pool();
        assert_eq!((pool.superslabs.get(), pool.huge_superslabs.get(), pool.abandoned.count.get()), (1, 0, 1));
        (self.allocator.mem.os().calls.get(), self.refused)
    }
}

fn run(policy: &str, refused: u64) -> (u64, u64) {
    let mut program = Program::new(policy, refused);
    let mut random = Random::new(7);
    for step in 1..=STEPS {
        program.step(&mut random);
        if step.is_multiple_of(VALIDATE_EVERY) {
            program.validate();
        }
        if program.blocks.len() > 40 {
            let (at, ..) = program.take(0);
            program.allocator.free(&mut program.heap, program.allocator.mem.block_at(at));
        }
    }
    program.end()
}

const POLICIES: [&str; 5] = [
    "arena=512M purge-delay=0 huge-cache=0 cache=0",
    "arena=512M huge=never purge-delay=0 huge-cache=4M cache=1",
    "arena=512M huge=never purge=unmap purge-delay=0 superslab=1M meta=sidecar huge-cache=0 cache=0",
    "arena=512M huge=hugetlb purge-delay=0 huge-cache=0 cache=0 prefault=populate-write",
    "arena=512M huge=hugetlb-plain purge=unmap purge-delay=0 huge-cache=0 cache=0",
];

#[test]
fn the_heap_stays_usable_whichever_call_fails() {
    for policy in POLICIES {
        let (calls, refused) = run(policy, u64::MAX);
        assert_eq!(refused, 0, "{policy}");
        assert!(calls > if cfg!(miri) { 3 } else { 20 }, "{policy}: only {calls} calls");
        // Every call of a short run fails once; of a long run, a sample of the calls.
        let step = (calls / REFUSED_CALLS).max(1) as usize;
        for number in (0..calls).step_by(step) {
            let (_, refused) = run(policy, number);
            assert!(refused <= 1, "{policy}: call {number}: {refused} requests were refused for one call");
        }
        eprintln!("{policy}: {calls} calls; one run for every {step}th call, which failed");
    }
}

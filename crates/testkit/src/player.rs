//! Seeded random programs on a [`PlainMemory`]. The [`NaiveModel`] checks every result.

use std::ops::Range;

use hksim_policy::memory::{Block, Memory, World};
use hksim_policy::{Allocator, Geometry, Policy, Request, ThreadHeap};

use crate::check_schedule::{CheckSchedule, CheckSpacing};
use crate::naive::{Alignment, Object};
use crate::pattern::{self, SLICE_BYTES};
use crate::pool_check::{check_pool, has_nothing_left};
use crate::spread::SmallDesign;
use crate::{Failing, NaiveModel, PlainMemory, Random};

/// Larger objects are written and checked only at both ends.
const WHOLE_BYTES_MAX: u64 = 128 << 10;
/// Size of each end.
const END_BYTES: u64 = 16 << 10;
/// Maximum number of links that [`CheckSchedule::Spaced`] checks read per operation. Without this limit, checks of a
/// few heaps with long lists take most of the time. With this limit and the next one, checks take a third of the time,
/// and nine of ten checks still run.
const LINKS_PER_OPERATION: u64 = 200;
/// Maximum number of bytes that [`CheckSchedule::Spaced`] checks compare per operation.
const BYTES_PER_OPERATION: u64 = 32 << 10;

/// How a program behaves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of operations.
    pub operations: u64,
    /// Maximum number of live objects.
    pub objects: u32,
    /// Number of threads, at least 1.
    pub threads: u32,
    /// Number of operations between calls of [`Allocator::validate`] for all heaps.
    pub validate_every: u64,
    /// Whether these calls, and the checks of all contents, may be postponed.
    pub schedule: CheckSchedule,
}

/// The counts of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlayerCounts {
    /// Operations performed.
    pub operations: u64,
    /// Blocks allocated.
    pub allocated: u64,
    /// Requests that failed.
    pub refused: u64,
    /// Resizes that did not move the block.
    pub resized_in_place: u64,
    /// Resizes that moved the block.
    pub resized_moved: u64,
    /// Frees by a thread other than the one that allocated.
    pub freed_foreign: u64,
    /// Threads that ended.
    pub threads_ended: u64,
    /// SuperSlabs that were unmapped and that the kernel refused to map again, at the end.
    pub superslabs_lost: u64,
    /// SuperSlabs with small pages under a policy of huge pages, summed over all checks of the advice.
    pub small_superslabs_seen: u64,
    /// Digest of all addresses, in order.
    pub digest: u64,
}

/// A random program in progress.
pub struct Player<G: Geometry> {
    allocator: Allocator<PlainMemory, G>,
    policy: Policy,
    heaps: Vec<Option<ThreadHeap<PlainMemory>>>,
    blocks: Vec<Option<(Block<u32>, usize)>>,
    model: NaiveModel,
    random: Random,
    limits: Limits,
    now_ns: u64,
    next_tag: u64,
    grows: bool,
    validated: CheckSpacing,
    compared: CheckSpacing,
    counts: PlayerCounts,
}

type Checked = Result<(), String>;

impl<G: Geometry> Player<G> {
    /// A program on a fresh allocator.
    pub fn new(memory: PlainMemory, geometry: G, design: &SmallDesign, limits: Limits, seed: u64) -> Player<G> {
        let alignment = match (geometry.header_bytes(), geometry.block_align()) {
            (1, _) => Alignment::Shifted,
            (_, 8) => Alignment::Eight,
            _ => Alignment::Natural,
        };
        let layout = *memory.layout();
        Player {
            allocator: Allocator::new(memory, geometry, design.policy, &layout).in_process(design.process),
            policy: design.policy,
            heaps: (0..limits.threads).map(|_| None).collect(),
            blocks: (0..limits.objects).map(|_| None).collect(),
            model: NaiveModel::new(alignment),
            random: Random::new(seed),
            limits,
            now_ns: 0,
            next_tag: 0,
            grows: true,
            validated: CheckSpacing::new(limits.schedule, LINKS_PER_OPERATION),
            compared: CheckSpacing::new(limits.schedule, BYTES_PER_OPERATION),
            counts: PlayerCounts::default(),
        }
    }

    /// The allocator.
    pub fn allocator(&self) -> &Allocator<PlainMemory, G> {
        &self.allocator
    }

    /// Runs the program, frees everything, ends every thread, and checks that no memory is in use.
    ///
    /// # Errors
    /// Describes the first guarantee that the allocator violated, with the number of the operation.
    pub fn run(mut self) -> Result<PlayerCounts, String> {
        for operation in 0..self.limits.operations {
            self.step().map_err(|error| format!("operation {operation}: {error}"))?;
            self.counts.operations += 1;
            if operation % self.limits.validate_every == 0 {
                self.validate_if_due().map_err(|error| format!("after operation {operation}: {error}"))?;
            }
            if operation % 1024 == 1023 {
                self.check_contents_if_due()?;
            }
        }
        self.finish().map_err(|error| format!("at the end: {error}"))?;
        Ok(self.counts)
    }

    fn step(&mut self) -> Checked {
        self.now_ns += self.random.below(200);
        if self.random.per_mille(20) {
            self.now_ns += self.random.below(300_000);
        }
        self.allocator.mem.set_now(self.now_ns);
        if self.random.per_mille(4) {
            self.grows = !self.grows;
        }
        let name = self.random.below(u64::from(self.limits.objects)) as usize;
        let thread = self.random.below(u64::from(self.limits.threads)) as usize;
        if self.random.per_mille(6) {
            return self.end_thread(thread);
        }
        let live = self.blocks[name].is_some();
        match (live, self.random.below(1000)) {
            (false, draw) if self.grows || draw < 300 => self.allocate(name, thread),
            (false, _) => Ok(()),
            (true, draw) if draw < 250 => self.resize(name, thread),
            (true, draw) if !self.grows || draw < 500 => self.free(name, thread),
            (true, _) => self.check_contents(name),
        }
    }

    /// The allocator, and a thread's heap, which is opened if necessary.
    fn open(&mut self, thread: usize) -> Result<(&Allocator<PlainMemory, G>, &mut ThreadHeap<PlainMemory>), String> {
        let heap = &mut self.heaps[thread];
        if heap.is_none() {
            *heap = Some(self.allocator.open_heap().ok_or("no heap can be opened")?);
        }
        Ok((&self.allocator, heap.as_mut().expect("it was opened above")))
    }

    fn end_thread(&mut self, thread: usize) -> Checked {
        if let Some(heap) = self.heaps[thread].take() {
            self.allocator.close_heap(heap);
            self.counts.threads_ended += 1;
        }
        Ok(())
    }

    fn random_bytes(&mut self) -> u64 {
        let superslab_bytes = 1u64 << self.allocator.geometry.superslab_shift();
        match self.random.below(1000) {
            0..=4 => 0,
            5..=599 => 1 + self.random.below(1100),
            600..=899 => self.random.log_uniform(64 << 10),
            900..=969 => self.random.log_uniform(superslab_bytes),
            970..=996 => self.random.log_uniform(superslab_bytes.max(2 << 20) * 2),
            _ => self.random.pick(&[u64::MAX, u64::MAX - 4096, 1 << 46, i64::MAX as u64, 1 << 32]),
        }
    }

    fn random_request(&mut self) -> Request {
        let bytes = self.random_bytes();
        let align = match self.random.below(100) {
            0..=79 => 1,
            80..=95 => 1 << self.random.below(13),
            _ => 1 << self.random.below(26),
        };
        Request { bytes, align, zeroed: self.random.per_mille(200) }
    }

    fn note_place(&mut self, block: Block<u32>) {
        let at = self.allocator.mem.arena_offset(block);
        self.counts.digest = (self.counts.digest.rotate_left(7) ^ at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn allocate(&mut self, name: usize, thread: usize) -> Checked {
        let request = self.random_request();
        let (allocator, heap) = self.open(thread)?;
        let block = allocator.allocate(heap, request);
        let Some(block) = block else {
            self.counts.refused += 1;
            return self.after_refusal();
        };
        self.counts.allocated += 1;
        self.note_place(block);
        self.blocks[name] = Some((block, thread));
        self.place(name, block, request)?;
        let at = self.allocator.mem.arena_offset(block);
        if request.zeroed && !self.allocator.mem.is_zero(at, request.bytes) {
            return Err(format!("{request:?} is served at {at:#x} with bytes that are not zero"));
        }
        self.write(name, request.bytes);
        Ok(())
    }

    /// Adds a block to the model, and checks that it is in the arena and does not overlap metadata.
    fn place(&mut self, name: usize, block: Block<u32>, request: Request) -> Checked {
        let mem = &self.allocator.mem;
        let (start, usable_bytes) = (mem.arena_offset(block), self.allocator.usable_bytes(block));
        let end = start + usable_bytes;
        let shift = self.allocator.geometry.superslab_shift();
        if end > u64::from(mem.ordinals()) << shift {
            return Err(format!("{request:?} is served at {start:#x}, {usable_bytes} bytes, beyond the arena"));
        }
        // The model works with offsets in the arena. The address of a separately mapped SuperSlab must have the same
        // alignment.
        if (mem.address(block) ^ start) & (request.align - 1) != 0 {
            return Err(format!("{request:?} is served at address {:#x}", mem.address(block)));
        }
        for ordinal in start >> shift..=(end - 1) >> shift {
            let metadata = mem.metadata_range(ordinal as u32);
            // A huge run may overwrite the stale metadata of an empty SuperSlab. A block in a SuperSlab must not.
            if block.offset != 0 && start < metadata.end && metadata.start < end {
                return Err(format!("{request:?} is served at {start:#x}, on metadata at {metadata:x?}"));
            }
        }
        let object = Object { start, bytes: request.bytes, usable_bytes, tag: 0, written: [0..0, 0..0] };
        self.model.place(name as u32, object, request.align).map_err(|error| format!("{request:?}: {error}"))
    }

    /// Checks that a failed request has changed nothing: contents are intact and invariants hold.
    fn after_refusal(&mut self) -> Checked {
        if self.counts.refused % 64 != 1 {
            return Ok(());
        }
        self.check_contents_if_due()?;
        self.validate_if_due()
    }

    fn free(&mut self, name: usize, thread: usize) -> Checked {
        self.check_contents(name)?;
        let Some((block, owner)) = self.blocks[name].take() else { return Ok(()) };
        self.model.remove(name as u32);
        self.counts.freed_foreign += u64::from(owner != thread);
        let (allocator, heap) = self.open(thread)?;
        allocator.free(heap, block);
        Ok(())
    }

    fn resize(&mut self, name: usize, thread: usize) -> Checked {
        self.check_contents(name)?;
        let Some((block, owner)) = self.blocks[name] else { return Ok(()) };
        let old = self.model.object(name as u32).clone();
        let bytes = match self.random.below(4) {
            0 => self.random_bytes().max(1),
            1 => old.bytes / 2 + 1,
            _ => old.bytes.saturating_add(1 + self.random.below(old.bytes / 2 + 64)),
        };
        let (allocator, heap) = self.open(thread)?;
        let new = allocator.resize(heap, block, bytes);
        let Some(new) = new else {
            self.counts.refused += 1;
            self.check_contents(name)?;
            return self.after_refusal();
        };
        self.note_place(new);
        let moved = new != block;
        self.counts.resized_moved += u64::from(moved);
        self.counts.resized_in_place += u64::from(!moved);
        self.blocks[name] = Some((new, if moved { thread } else { owner }));
        self.model.remove(name as u32);
        self.place(name, new, Request::plain(bytes))?;
        let kept = old.written.map(|range| range.start.min(bytes)..range.end.min(bytes));
        self.model.wrote(name as u32, old.tag, kept);
        self.check_contents(name)?;
        self.write(name, bytes);
        Ok(())
    }

    /// Writes a new pattern to an object: to all of it, or to both ends if it is long.
    fn write(&mut self, name: usize, bytes: u64) {
        self.next_tag += 1;
        let parts =
            if bytes <= WHOLE_BYTES_MAX { [0..bytes, bytes..bytes] } else { [0..END_BYTES, bytes - END_BYTES..bytes] };
        let start = self.model.object(name as u32).start;
        for (at, slice) in parts.iter().flat_map(|part| slices(self.next_tag, part.clone())) {
            self.allocator.mem.store(start + at, slice);
        }
        self.model.wrote(name as u32, self.next_tag, parts);
    }

    fn check_contents(&self, name: usize) -> Checked {
        self.check_object(self.model.object(name as u32))
    }

    fn check_object(&self, object: &Object) -> Checked {
        let mem = &self.allocator.mem;
        for (at, slice) in object.written.iter().flat_map(|part| slices(object.tag, part.clone())) {
            if !mem.holds(object.start + at, slice) {
                let same = |byte: &usize| mem.holds(object.start + at + *byte as u64, &slice[*byte..=*byte]);
                let first = at + (0..slice.len()).take_while(same).count() as u64;
                return Err(format!("byte {first} of the {} bytes at {:#x} changed", object.bytes, object.start));
            }
        }
        Ok(())
    }

    fn check_all_contents(&self) -> Checked {
        self.model.objects().try_for_each(|object| self.check_object(object))
    }

    fn check_contents_if_due(&mut self) -> Checked {
        if self.compared.is_due(self.counts.operations) {
            self.check_all_contents()?;
            let written = |object: &Object| object.written.iter().map(|part| part.end - part.start).sum::<u64>();
            self.compared.performed(self.counts.operations, self.model.objects().map(written).sum());
        }
        Ok(())
    }

    fn validate_if_due(&mut self) -> Checked {
        if self.validated.is_due(self.counts.operations) {
            let before = self.allocator.mem.links_read();
            self.validate()?;
            self.validated.performed(self.counts.operations, self.allocator.mem.links_read() - before);
        }
        Ok(())
    }

    fn validate(&mut self) -> Checked {
        for heap in self.heaps.iter().flatten() {
            self.allocator.validate(heap).map_err(|violation| format!("heap {}: {violation:?}", heap.id()))?;
        }
        if self.allocator.mem.failed_calls() == 0 {
            self.counts.small_superslabs_seen += self.allocator.mem.check_advice(&self.policy)?;
        }
        check_pool(&self.allocator.mem)
    }

    fn finish(&mut self) -> Checked {
        self.check_all_contents()?;
        for name in 0..self.blocks.len() {
            let thread = self.random.below(u64::from(self.limits.threads)) as usize;
            if self.blocks[name].is_some() {
                self.free(name, thread)?;
            }
            if self.random.per_mille(10) {
                self.end_thread(thread)?;
            }
        }
        self.validate()?;
        (0..self.heaps.len()).try_for_each(|thread| self.end_thread(thread))?;
        // The checks below are conclusive only if no call fails.
        self.allocator.mem.set_failing(Failing::Nothing);
        drain_abandoned(&self.allocator)?;
        check_pool(&self.allocator.mem)?;
        self.counts.superslabs_lost = self.allocator.mem.pool().lost_superslabs.get().into();
        let superslabs = self.allocator.mem.pool().superslabs.get();
        if superslabs > 0 {
            return Err(format!("{superslabs} superslabs stay in use although nothing is live"));
        }
        let startup_bytes = self.policy.startup_touch_bytes;
        let startup = startup_bytes.div_ceil(1 << self.allocator.geometry.superslab_shift());
        let huge = u64::from(self.allocator.mem.pool().huge_superslabs.get());
        if huge > startup {
            Err(format!("{huge} superslabs stay with huge blocks; start-up took {startup}"))
        } else {
            Ok(())
        }
    }
}

/// The pattern of a tag over a part of an object, as slices with their offsets.
fn slices(tag: u64, part: Range<u64>) -> impl Iterator<Item = (u64, &'static [u8])> {
    let Range { start, end } = part;
    (start..end).step_by(SLICE_BYTES as usize).map(move |at| (at, pattern::slice(tag, at, (end - at).min(SLICE_BYTES))))
}

/// Adopts abandoned SuperSlabs until none is left. Without live blocks, each must turn out to be empty or lost.
///
/// # Errors
/// An allocation adopted no abandoned SuperSlab, or it failed although the arena is not completely lost.
pub fn drain_abandoned<M: Memory, G: Geometry>(allocator: &Allocator<M, G>) -> Result<(), String> {
    loop {
        let before = allocator.mem.pool().abandoned.count.get();
        if before == 0 {
            return Ok(());
        }
        let mut heap = allocator.open_heap().ok_or("no heap can be opened")?;
        match allocator.allocate(&mut heap, Request::plain(1)) {
            Some(block) => allocator.free(&mut heap, block),
            None if has_nothing_left(&allocator.mem) => {}
            None => return Err("an arena without blocks is full".into()),
        }
        allocator.close_heap(heap);
        let after = allocator.mem.pool().abandoned.count.get();
        if after >= before {
            return Err(format!("{after} abandoned superslabs, of {before} before one was adopted"));
        }
    }
}

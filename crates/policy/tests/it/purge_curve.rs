//! Purges along a decay curve, against a model that is written from their description.
//!
//! The model keeps the whole history: when entries were added, and how many of them may stay at each age. It knows
//! which list an allocation takes memory from, and compares the bytes that wait for their purge after every step.

use hksim_policy::layout::Layout;
use hksim_policy::vocabulary::{Huge, PurgeCurve};
use hksim_policy::{Allocator, Block, Policy, Request, RunGeometry, World};
use hksim_testkit::{PlainMemory, Random, test_scale};

const SUPERSLAB_BYTES: u64 = 64 << 10;
/// One of the 16 epochs of the purge delay.
const EPOCH_NS: u64 = 1_000;

/// The part of a list that may stay, by age in epochs.
fn may_stay(age: u64) -> f64 {
    let part = age as f64 / 16.0;
    if part < 1.0 { 1.0 - part * part * (3.0 - 2.0 * part) } else { 0.0 }
}

/// The decay of one list.
#[derive(Default)]
struct Decay {
    /// Epochs at whose end entries were counted, with the number added in each.
    added: Vec<(u64, u32)>,
    epoch: u64,
    before: u32,
}

impl Decay {
    /// How many entries may stay, if a new epoch has begun.
    fn allowed(&mut self, now_ns: u64, entries: u32) -> Option<u32> {
        let epoch = now_ns / EPOCH_NS;
        if epoch == self.epoch {
            return None;
        }
        self.epoch = epoch;
        self.added.push((epoch, entries.saturating_sub(self.before)));
        let sum: f64 = self.added.iter().map(|&(added, count)| f64::from(count) * may_stay(epoch - added)).sum();
        Some(sum.ceil() as u32)
    }
}

/// A list of unused memory: its entries in bytes, the oldest first.
#[derive(Default)]
struct Waiting {
    entries: Vec<u64>,
    decay: Decay,
}

impl Waiting {
    fn tick(&mut self, now_ns: u64) {
        if let Some(allowed) = self.decay.allowed(now_ns, self.entries.len() as u32) {
            let excess = self.entries.len().saturating_sub(allowed as usize);
            self.entries.drain(..excess);
            self.decay.before = self.entries.len() as u32;
        }
    }

    fn bytes(&self) -> u64 {
        self.entries.iter().sum()
    }
}

fn allocator(curve: PurgeCurve) -> Allocator<PlainMemory, RunGeometry> {
    let policy = Policy {
        superslab_bytes: SUPERSLAB_BYTES,
        slab_bytes: 16 << 10,
        huge: Huge::Never,
        cache_superslabs: 1000,
        purge_delay_ns: 16 * EPOCH_NS,
        purge_curve: curve,
        ..Policy::default()
    };
    let geometry = RunGeometry::new(&policy).unwrap();
    let layout = Layout::new(&geometry, 64 << 20);
    let memory: PlainMemory = PlainMemory::new(layout, &geometry, layout.ordinals(), 1);
    Allocator::new(memory, geometry, policy, &layout)
}

/// The time until the next step: within an epoch, over some epochs, or beyond the whole delay.
fn pause_ns(random: &mut Random) -> u64 {
    match random.below(100) {
        0 => 40 * EPOCH_NS,
        1..20 => random.below(4 * EPOCH_NS),
        _ => random.below(EPOCH_NS / 4),
    }
}

/// Frees and allocates huge blocks. No size fits another, so an allocation takes the most recent run of its size, or
/// fresh memory.
fn huge_runs(seed: u64) -> u64 {
    let allocator = allocator(PurgeCurve::Smoothstep);
    let mut heap = allocator.open_heap().unwrap();
    let mut random = Random::new(seed);
    let (mut waiting, mut live, mut now_ns, mut purged) = (Waiting::default(), Vec::<(Block<u32>, u64)>::new(), 0, 0);
    for step in 0..4_000 {
        now_ns += pause_ns(&mut random);
        allocator.mem.set_now(now_ns);
        let before = waiting.entries.len();
        if live.len() < 12 && random.per_mille(500) || live.is_empty() {
            let bytes = random.pick(&[1, 2, 3, 5, 8]) * SUPERSLAB_BYTES;
            waiting.tick(now_ns);
            purged += (before - waiting.entries.len()) as u64;
            if let Some(fitting) = waiting.entries.iter().rposition(|&other| other == bytes) {
                waiting.entries.remove(fitting);
            }
            live.push((allocator.allocate(&mut heap, Request::plain(bytes)).expect("memory"), bytes));
        } else {
            let (block, bytes) = live.swap_remove(random.below(live.len() as u64) as usize);
            waiting.entries.push(bytes);
            waiting.tick(now_ns);
            purged += (before + 1 - waiting.entries.len()) as u64;
            allocator.free(&mut heap, block);
        }
        let found = allocator.pool_stats().huge_idle_bytes;
        assert_eq!(found, waiting.bytes(), "seed {seed:#x}, step {step}, {now_ns} ns");
    }
    purged
}

/// Frees and allocates blocks that each take a SuperSlab. An allocation takes the SuperSlab that became empty last,
/// purged or not.
fn idle_superslabs(seed: u64) -> u64 {
    let allocator = allocator(PurgeCurve::Smoothstep);
    let mut heap = allocator.open_heap().unwrap();
    let mut random = Random::new(seed);
    let (mut live, mut now_ns, mut purged) = (Vec::<Block<u32>>::new(), 0, 0);
    // Empty SuperSlabs, the oldest first: whether each was purged.
    let (mut idle, mut decay) = (Vec::<bool>::new(), Decay::default());
    let mut tick = |idle: &mut Vec<bool>, now_ns| {
        let mut present = idle.iter().filter(|&&is_purged| !is_purged).count() as u32;
        let Some(allowed) = decay.allowed(now_ns, present) else { return };
        for is_purged in idle.iter_mut().filter(|is_purged| !**is_purged) {
            if present > allowed {
                *is_purged = true;
                present -= 1;
                purged += 1;
            }
        }
        decay.before = present;
    };
    for step in 0..4_000 {
        now_ns += pause_ns(&mut random);
        allocator.mem.set_now(now_ns);
        let wanted = if (step / 200) % 2 == 0 { 60 } else { 10 };
        if live.len() < wanted && random.per_mille(700) || live.is_empty() {
            tick(&mut idle, now_ns);
            idle.pop();
            live.push(allocator.allocate(&mut heap, Request::plain(SUPERSLAB_BYTES / 2)).expect("memory"));
        } else {
            let block = live.swap_remove(random.below(live.len() as u64) as usize);
            idle.push(false);
            tick(&mut idle, now_ns);
            allocator.free(&mut heap, block);
        }
        let present = idle.iter().filter(|&&is_purged| !is_purged).count() as u64;
        assert_eq!(allocator.pool_stats().idle_present, present, "seed {seed:#x}, step {step}, {now_ns} ns");
    }
    purged
}

#[test]
fn cached_runs_shrink_along_the_curve() {
    let purged: u64 = (0xC0_0000..0xC0_0000 + 10 * test_scale()).map(huge_runs).sum();
    assert!(purged > 1_000, "only {purged} purges");
}

#[test]
fn idle_superslabs_shrink_along_the_curve() {
    let purged: u64 = (0xC1_0000..0xC1_0000 + 10 * test_scale()).map(idle_superslabs).sum();
    assert!(purged > 1_000, "only {purged} purges");
}

#[test]
fn half_of_the_memory_is_left_after_half_of_the_delay_and_none_after_all() {
    for (curve, expected) in [(PurgeCurve::Step, [10, 10, 10, 0]), (PurgeCurve::Smoothstep, [10, 9, 5, 0])] {
        let allocator = allocator(curve);
        let mut heap = allocator.open_heap().unwrap();
        let half = Request::plain(SUPERSLAB_BYTES / 2);
        let blocks: Vec<_> = (0..10).map(|_| allocator.allocate(&mut heap, half).expect("memory")).collect();
        // The last free begins an epoch, so that all ten were added in the one before.
        allocator.mem.set_now(EPOCH_NS - 1);
        blocks.iter().skip(1).for_each(|&block| allocator.free(&mut heap, block));
        allocator.mem.set_now(EPOCH_NS);
        allocator.free(&mut heap, blocks[0]);
        // A huge block allocates and frees without any empty SuperSlab, and runs what is due.
        let present = [1, 5, 9, 17].map(|epochs| {
            allocator.mem.set_now(epochs * EPOCH_NS);
            let huge = allocator.allocate(&mut heap, Request::plain(SUPERSLAB_BYTES)).expect("memory");
            let present = allocator.pool_stats().idle_present;
            allocator.free(&mut heap, huge);
            present
        });
        assert_eq!(present, expected, "{curve:?}");
    }
}

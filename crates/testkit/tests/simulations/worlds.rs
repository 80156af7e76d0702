//! Checks that the driver places every object identically on three memories: the simulator's, mmap, and plain vectors.
//! Placements are compared after every event, under random policies. Failures print the seed.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::designs::random_policy;
use hksim_engine::{Driver, Live, TouchRule};
use hksim_linux_mm::{Kernel, KernelConfig};
use hksim_native::{MmapMemory, Os, Syscalls};
use hksim_policy::memory::{Advice, Mapping};
use hksim_policy::{Allocator, Errno, Geometry, Policy, PreparedPolicy, RunGeometry, World};
use hksim_sim::accounting::Accounting;
use hksim_sim::memory::SimMemory;
use hksim_testkit::events::{RandomTrace, common_trace, random_trace};
use hksim_testkit::{PlainMemory, Random, test_scale};
use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};
use hksim_trace::generate::{RandomMixed, Server, TinyHot, Workload};
use hksim_trace::hkt::Batch;

/// Real system calls, and a clock that only changes when it is set.
#[derive(Default)]
struct SetClock {
    now_ns: Cell<u64>,
}

impl Os for SetClock {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.map(at, bytes, mapping) }
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        Syscalls.map_anywhere(bytes, mapping)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.unmap(at, bytes) }
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.advise(at, bytes, advice) }
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.remap(from, bytes, to) }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }
}

/// A live object: ordinal, offset, bytes.
type Placed = (u32, u32, u64);

fn placed<W: World, G: Geometry>(driver: &Driver<Allocator<W, G>>) -> Vec<Placed> {
    let ordinal = |superslab| driver.allocator().mem.ordinal(superslab);
    driver.live_objects().map(|(block, bytes)| (ordinal(block.superslab), block.offset, bytes)).collect()
}

/// The digests after every event, and the live objects after every [`OBJECTS_EVERY`] events.
#[derive(Default)]
struct Placements {
    digests: Vec<(u64, u64)>,
    objects: Vec<Vec<Placed>>,
    live: Live,
    /// The memory's clock at the end.
    now_ns: u64,
}

/// Number of events between comparisons of all live objects.
const OBJECTS_EVERY: usize = 500;

fn driver_on<W: World>(
    memory: W,
    plan: &PreparedPolicy,
    trace: &RandomTrace,
    touch: TouchRule,
) -> Driver<Allocator<W, RunGeometry>> {
    let allocator = Allocator::new(memory, plan.geometry.clone(), plan.policy, &plan.layout);
    Driver::new(allocator, trace.threads, trace.objects_peak, touch)
}

fn drive<W: World, G: Geometry>(driver: &mut Driver<Allocator<W, G>>, trace: &RandomTrace) -> Placements {
    let mut placements = Placements::default();
    for (index, event) in trace.events.iter().enumerate() {
        driver.step(event).unwrap_or_else(|error| panic!("event {index}: {error}"));
        placements.digests.push((driver.placement(), driver.failed()));
        if index % OBJECTS_EVERY == 0 || index + 1 == trace.events.len() {
            placements.objects.push(placed(driver));
            for heap in driver.heaps() {
                let valid = driver.allocator().validate(heap);
                valid.unwrap_or_else(|violation| panic!("event {index}, heap {}: {violation:?}", heap.id()));
            }
        }
    }
    placements.live = driver.live();
    placements.now_ns = driver.allocator().mem.now_ns();
    placements
}

/// As [`drive`], by column: in batches and parts of random length. Contains the digests after each part instead of those
/// after each event.
fn drive_by_column<W: World, G: Geometry>(
    driver: &mut Driver<Allocator<W, G>>,
    trace: &RandomTrace,
) -> (Vec<usize>, Placements) {
    let (mut placements, mut ends) = (Placements::default(), Vec::new());
    let (mut random, mut batch) = (Random::new(trace.events.len() as u64), Batch::new());
    let (mut passed_before, mut counted) = (0, 0);
    while passed_before < trace.events.len() {
        let events = &trace.events[passed_before..];
        batch.copy_from(&events[..events.len().min(1 + random.below(1500) as usize)]);
        let mut reader = batch.read();
        while reader.passed() < batch.len() {
            let part = random.pick(&[10, 100, 1500]);
            let end = batch.len().min(reader.passed() + 1 + random.below(part) as usize);
            let stepped = driver.step_common(&mut reader, end, |_| counted += 1);
            stepped.unwrap_or_else(|error| panic!("event {}: {error}", passed_before + reader.passed()));
            if let Some(event) = if reader.passed() < end { reader.uncommon() } else { None } {
                driver.step(event).unwrap_or_else(|error| panic!("{event:?}: {error}"));
                counted += 1;
            }
            assert_eq!(counted, passed_before + reader.passed(), "events after which `done` was called");
            ends.push(counted);
            placements.digests.push((driver.placement(), driver.failed()));
        }
        passed_before += batch.len();
    }
    placements.objects.push(placed(driver));
    placements.live = driver.live();
    placements.now_ns = driver.allocator().mem.now_ns();
    (ends, placements)
}

/// The costs of a simulation. They depend on the time of each purge.
fn costs<G: Geometry>(driver: &Driver<Allocator<SimMemory<Accounting>, G>>) -> String {
    let accounts = driver.allocator().mem.observer();
    format!("{:?} {:?} {:?}", accounts.kernel().counters(), accounts.os_calls(), accounts.by_reason())
}

/// Checks that events have the same effects one by one and by column.
fn compare_by_column(by_event: &Placements, (ends, by_column): (Vec<usize>, Placements)) {
    for (end, digest) in ends.into_iter().zip(&by_column.digests) {
        assert_eq!(by_event.digests[end - 1], *digest, "placements by column after {end} events");
    }
    assert!(by_event.objects.last() == by_column.objects.last(), "by column: live objects differ");
    assert_eq!((by_event.live, by_event.now_ns), (by_column.live, by_column.now_ns), "live bytes and clock by column");
}

fn compare(names: &str, one: &Placements, other: &Placements, trace: &RandomTrace) {
    if let Some(event) = one.digests.iter().zip(&other.digests).position(|(one, other)| one != other) {
        panic!("{names} differ at event {event}: {:?}", trace.events[event]);
    }
    assert_eq!(one.digests.len(), other.digests.len(), "{names}");
    assert!(one.objects == other.objects, "{names}: live objects differ");
}

/// Runs a trace on all three memories. Returns the number of failed requests.
fn worlds_agree(design: &Policy, trace: &RandomTrace, touch: TouchRule, what: &str) -> u64 {
    eprintln!("{what}: {touch:?}, {design:?}");
    let plan = design.prepare().unwrap_or_else(|error| panic!("{error}"));
    let new_accounts = || Accounting::new(Kernel::new(KernelConfig::default()));
    let new_simulated = || driver_on(SimMemory::new(plan.layout, &plan.geometry, new_accounts()), &plan, trace, touch);
    let (mut by_event, mut by_column) = (new_simulated(), new_simulated());
    let simulated = drive(&mut by_event, trace);
    compare_by_column(&simulated, drive_by_column(&mut by_column, trace));
    assert_eq!(costs(&by_event), costs(&by_column), "costs by event and by column");
    let plain: PlainMemory = PlainMemory::new(plan.layout, &plan.geometry, plan.layout.ordinals(), 7);
    let plain = drive(&mut driver_on(plain, &plan, trace, touch), trace);
    compare("the simulator and the plain memory", &simulated, &plain, trace);
    match MmapMemory::new(plan.layout, SetClock::default()) {
        Ok(native) => {
            let native = drive(&mut driver_on(native, &plan, trace, touch), trace);
            compare("the simulator and mmap", &simulated, &native, trace);
        }
        Err(error) => eprintln!("skipped: the native memory: {error}"),
    }
    simulated.digests.last().map_or(0, |&(_, failed)| failed)
}

#[test]
fn random_traces_are_placed_alike_under_random_policies() {
    let mut refused = 0;
    for seed in 0x7000..0x7000 + 10 * test_scale() {
        let mut random = Random::new(seed);
        let bytes_max = random.pick(&[5_000, 300_000, 3 << 20, 12 << 20]);
        let trace = random_trace(seed, 3000, 1 + random.below(6) as u32, bytes_max);
        let touch = random.pick(&TouchRule::ALL);
        refused += worlds_agree(&random_policy(&mut random), &trace, touch, &format!("seed {seed:#x}"));
    }
    assert!(refused > 10, "no arena was ever full: {refused} refusals");
}

#[test]
fn common_events_are_placed_alike_under_random_policies() {
    for seed in 0x7100..0x7100 + 10 * test_scale() {
        let mut random = Random::new(seed);
        let trace = common_trace(seed, 10_000);
        let touch = random.pick(&TouchRule::ALL);
        worlds_agree(&random_policy(&mut random), &trace, touch, &format!("common events, seed {seed:#x}"));
    }
}

#[test]
fn generated_workloads_are_placed_alike_under_the_presets() {
    let mixed = RandomMixed { cycles: 4_000, ..RandomMixed::default() };
    let hot = TinyHot { cycles: 3_000, ..TinyHot::default() };
    let server = Server { live: 4 << 20, events: 20_000, ..Server::default() };
    for workload in [Workload::RandomMixed(mixed), Workload::TinyHot(hot), Workload::Server(server)] {
        let mut source = workload.source().expect("legal parameters");
        let summary = *source.summary();
        let mut events = Vec::new();
        while let Some(batch) = source.next_batch().expect("a generator does not fail") {
            events.extend_from_slice(batch);
        }
        let trace = RandomTrace { events, threads: summary.threads, objects_peak: summary.objects_peak };
        for name in Policy::PRESETS {
            let preset = Policy { arena_bytes: 256 << 20, ..Policy::preset(name).expect("a preset") };
            let refused = worlds_agree(&preset, &trace, TouchRule::Recorded, workload.name());
            assert_eq!(refused, 0, "{} under {name}", workload.name());
        }
    }
}

/// The command's test `idle.c` checks the same for the native allocator.
#[test]
fn a_thread_that_has_no_block_has_no_heap() {
    let plan = Policy { arena_bytes: 64 << 20, ..Policy::default() }.prepare().expect("a legal design");
    let plain: PlainMemory = PlainMemory::new(plan.layout, &plan.geometry, plan.layout.ordinals(), 7);
    let allocator = Allocator::new(plain, plan.geometry.clone(), plan.policy, &plan.layout);
    let mut driver = Driver::new(allocator, 3, 1, TouchRule::Recorded);
    let mut step = |thread, op| {
        driver.step(&Event { time_ns: 0, thread: ThreadId(thread), site: SiteId::UNKNOWN, op }).expect("a slot");
        driver.heaps().count()
    };
    let object = ObjectId(0);
    let heaps = [
        step(0, Op::ThreadStart),
        step(1, Op::FreeNull),
        step(
            0,
            Op::Alloc { object, size: 100, align_log2: 0, call: AllocCall::Malloc, initial_touch: InitialTouch::None },
        ),
        step(1, Op::UsableSize { object }),
        step(1, Op::Touch { object, offset: 0, bytes: 1, access: Access::Write }),
        step(2, Op::Free { object }),
        step(2, Op::ThreadExit),
        step(1, Op::Free { object }), // already freed: the object has no block
    ];
    assert_eq!(heaps, [0, 0, 1, 1, 1, 2, 1, 1]);
}

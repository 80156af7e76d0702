//! Compares the driver's count of touched live bytes with a set of every touched byte.

use std::collections::{HashMap, HashSet};

use hksim_engine::{Driver, TouchRule};
use hksim_policy::{Allocator, PAGE_BYTES, Policy, RunGeometry};
use hksim_testkit::events::{RandomTrace, random_trace};
use hksim_testkit::{PlainMemory, Random, test_scale};
use hksim_trace::event::{Access, AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};

/// Size and touched bytes of the live objects with blocks.
#[derive(Default)]
struct Naive {
    objects: HashMap<ObjectId, (u64, HashSet<u64>)>,
    peak: u64,
}

impl Naive {
    /// The bytes that are touched when the bytes `from..size` are allocated.
    fn newly_touched(rule: TouchRule, initial_touch: InitialTouch, from: u64, size: u64) -> std::ops::Range<u64> {
        let all = match rule {
            TouchRule::All | TouchRule::ReadThenAll => true,
            TouchRule::Recorded => {
                matches!(initial_touch, InitialTouch::All | InitialTouch::Read | InitialTouch::ReadThenWrite)
            }
            _ => false,
        };
        let first = rule == TouchRule::First || rule == TouchRule::Recorded && initial_touch == InitialTouch::FirstByte;
        match (all, first && from == 0) {
            (true, _) => from..size,
            (false, true) => 0..1.min(size),
            (false, false) => 0..0,
        }
    }

    fn step(&mut self, op: Op, rule: TouchRule, refused: bool) {
        match op {
            Op::Alloc { object, .. } | Op::ReallocUnknown { object, .. } if refused => {
                self.objects.remove(&object);
            }
            Op::Alloc { object, size, initial_touch, .. } => {
                self.objects.insert(object, (size, Naive::newly_touched(rule, initial_touch, 0, size).collect()));
            }
            Op::ReallocUnknown { object, size, .. } => {
                self.objects.insert(object, (size, Naive::newly_touched(rule, InitialTouch::None, 0, size).collect()));
            }
            Op::Realloc { object, size, initial_touch, .. } if !refused => {
                let (old, touched) = self.objects.entry(object).or_default();
                touched.retain(|&byte| byte < size);
                touched.extend(Naive::newly_touched(rule, initial_touch, *old, size));
                *old = size;
            }
            Op::Touch { object, offset, bytes, .. } if rule == TouchRule::Recorded => {
                if let Some((size, touched)) = self.objects.get_mut(&object) {
                    touched.extend(offset..(offset + u64::from(bytes)).min(*size));
                }
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                if rule == TouchRule::AllAtDeath
                    && let Some((size, touched)) = self.objects.get_mut(&object)
                {
                    touched.extend(0..*size);
                    self.peak = self.peak.max(self.bytes());
                }
                self.objects.remove(&object);
            }
            _ => (),
        }
        self.peak = self.peak.max(self.bytes());
    }

    fn bytes(&self) -> u64 {
        self.objects.values().map(|(_, touched)| touched.len() as u64).sum()
    }
}

fn driver(trace: &RandomTrace, rule: TouchRule) -> Driver<Allocator<PlainMemory, RunGeometry>> {
    let plan = Policy { arena_bytes: 64 << 20, ..Policy::default() }.prepare().expect("a legal design");
    let memory = PlainMemory::new(plan.layout, &plan.geometry, plan.layout.ordinals(), 7);
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    Driver::new(allocator, trace.threads, trace.objects_peak, rule).counting_scattered()
}

/// The peak of touched live bytes of a trace, in pages. Compares driver and oracle at every event.
fn floor_pages(trace: &RandomTrace, rule: TouchRule) -> u64 {
    let (mut driver, mut naive) = (driver(trace, rule), Naive::default());
    for (index, event) in trace.events.iter().enumerate() {
        let failed = driver.failed();
        driver.step(event).unwrap_or_else(|error| panic!("event {index}: {error}"));
        naive.step(event.op, rule, driver.failed() > failed);
        let counted = (driver.live().touched_bytes, driver.live().touched_bytes_peak);
        assert_eq!(counted, (naive.bytes(), naive.peak), "{rule:?}, event {index}: {:?}", event.op);
    }
    naive.peak.div_ceil(PAGE_BYTES)
}

#[test]
fn touched_bytes_of_random_traces_are_counted_exactly() {
    for seed in 0x8800..0x8800 + 3 * test_scale() {
        eprintln!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let bytes_max = random.pick(&[200, 5_000, 70_000]);
        let trace = random_trace(seed, 1500, 1, bytes_max);
        let floors = TouchRule::ALL.map(|rule| floor_pages(&trace, rule));
        assert!(floors[0] == 0 && floors[2..].iter().all(|&floor| floor > 0), "{floors:?}");
    }
}

/// The floor, in pages, of 100 blocks of 8 000 bytes. In each block, 8 bytes are touched at each of these offsets, in
/// this order.
fn floor_of(offsets: &[u64]) -> u64 {
    let objects = 0..100u32;
    let call = AllocCall::Malloc;
    let alloc =
        |id| Op::Alloc { object: ObjectId(id), size: 8000, align_log2: 0, call, initial_touch: InitialTouch::Watched };
    let touch = |id, offset| Op::Touch { object: ObjectId(id), offset, bytes: 8, access: Access::Write };
    let ops = objects.clone().map(alloc).chain(objects.flat_map(|id| offsets.iter().map(move |&at| touch(id, at))));
    let events = ops.map(|op| Event::new(0, ThreadId(0), op)).collect();
    floor_pages(&RandomTrace { events, threads: 1, objects_peak: 100 }, TouchRule::Recorded)
}

#[test]
fn the_order_and_the_place_of_touches_do_not_matter() {
    let words = || (0..1000).map(|word| word * 8);
    assert_eq!(floor_of(&words().rev().collect::<Vec<_>>()), 196, "backwards");
    assert_eq!(floor_of(&words().skip(500).collect::<Vec<_>>()), 98, "the upper half");
    assert_eq!(floor_of(&words().step_by(2).collect::<Vec<_>>()), 98, "every second word");
    let odd_last = words().step_by(2).chain(words().skip(1).step_by(2));
    assert_eq!(floor_of(&odd_last.collect::<Vec<_>>()), 196, "every second word, then the others");
}

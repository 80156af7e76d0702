//! The merge from addresses to objects, compared with a program whose true order is known.
//!
//! The oracle is a toy program: threads that allocate, free, reallocate and pass blocks on, on a toy allocator that
//! reuses addresses at once. Its true order is then disturbed as the clocks of two cores disturb it. The merge must
//! restore which call allocated and which freed each object.

use crate::support::Random;
use hksim_trace::event::*;
use hksim_trace::header::Quality;
use hksim_trace::resolve::{Plain, PlainCall, RawEvent, RawOp, Resolver, WaitLimits};
use std::collections::{HashMap, VecDeque};

/// One call of the toy program: the raw event, and the serial number of the object it is about.
#[derive(Clone, Copy, Debug)]
struct Call {
    raw: RawEvent,
    serial: u64,
}

/// Runs the toy program; calls are in their true order, one per 40 ns. An address is used again after `frees_between`
/// others were freed.
fn program(random: &mut Random, threads: u64, length: u64, frees_between: usize) -> Vec<Call> {
    let mut dead: Vec<u64> = Vec::new();
    let mut live: Vec<(u64, u64)> = Vec::new(); // address, serial
    let (mut fresh, mut serials) = (0x1000, 0);
    let mut calls = Vec::new();
    // Every thread sets a mark with its number, as the merge renumbers threads.
    for thread in 0..threads {
        let (time_ns, op) = (thread, RawOp::Mark { name: thread as u32 });
        calls.push(Call { raw: RawEvent::new(time_ns, thread as u32, op), serial: 0 });
    }
    for step in 0..length {
        let thread = random.below(threads) as u32;
        let mut address = || match dead.len().checked_sub(1 + frees_between) {
            Some(last) => dead.remove(last),
            None => {
                fresh += 16;
                fresh
            }
        };
        let (op, serial) = match random.below(8) {
            0..4 => {
                let address = address();
                serials += 1;
                live.push((address, serials));
                let (size, align_log2, call) = (random.below(100), 0, AllocCall::Malloc);
                (RawOp::Alloc { address, size, align_log2, call, initial_touch: InitialTouch::None }, serials)
            }
            kind if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                let (old, serial) = live[at];
                if kind == 7 {
                    let new = if random.chance(30) { old } else { address() };
                    if new != old {
                        dead.push(old);
                    }
                    live[at].0 = new;
                    (
                        RawOp::Realloc {
                            old,
                            new,
                            size: 1 + random.below(100),
                            call: ReallocCall::Realloc,
                            initial_touch: InitialTouch::None,
                        },
                        serial,
                    )
                } else {
                    live.swap_remove(at);
                    dead.push(old);
                    (RawOp::Free { address: old }, serial)
                }
            }
            _ => (RawOp::Free { address: 0 }, 0),
        };
        calls.push(Call { raw: RawEvent::new(1000 + 40 * step, thread, op), serial });
    }
    calls
}

/// Shifts stamps by up to `skew_ns` either way, keeps the order within each thread, and sorts.
fn disturb(random: &mut Random, calls: &[Call], skew_ns: u64) -> Vec<RawEvent> {
    let mut last = HashMap::new();
    let mut raws: Vec<RawEvent> = calls
        .iter()
        .map(|call| {
            let floor = last.entry(call.raw.thread).or_insert(0);
            *floor = (*floor).max(call.raw.time_ns.saturating_sub(skew_ns) + random.below(2 * skew_ns + 1));
            RawEvent { time_ns: *floor, ..call.raw }
        })
        .collect();
    raws.sort_by_key(|raw| raw.time_ns); // stable: equal stamps of a thread stay in order
    raws
}

/// The emitted events must be, per thread, the program's calls, about the same objects.
fn check_against(calls: &[Call], events: &[Event], seed: u64) {
    let mut threads: Vec<u32> = Vec::new(); // emitted number to raw number
    let mut expected: HashMap<u32, VecDeque<&Call>> = HashMap::new();
    for call in calls {
        expected.entry(call.raw.thread).or_default().push_back(call);
    }
    let mut serial_of: HashMap<u32, u64> = HashMap::new();
    let mut time_ns = 0;
    for (index, event) in events.iter().enumerate() {
        assert!(event.time_ns >= time_ns, "seed {seed}: time decreases at event {index}");
        time_ns = event.time_ns;
        let number = event.thread.0 as usize;
        if let Op::Mark { name } = event.op {
            assert_eq!(number, threads.len(), "seed {seed}: threads are numbered by first appearance");
            threads.push(name);
        }
        let call = expected.get_mut(&threads[number]).unwrap().pop_front().expect("a call");
        let place = format!("seed {seed}: event {index} {event:?} against {call:?}");
        match (event.op, call.raw.op) {
            (Op::Alloc { object, size, .. }, RawOp::Alloc { size: true_size, .. }) => {
                assert_eq!(size, true_size, "{place}");
                assert_eq!(serial_of.insert(object.0, call.serial), None, "{place}");
            }
            (Op::Free { object }, RawOp::Free { .. }) => {
                assert_eq!(serial_of.remove(&object.0), Some(call.serial), "{place}");
            }
            (Op::Realloc { object, .. }, RawOp::Realloc { .. }) => {
                assert_eq!(serial_of.get(&object.0), Some(&call.serial), "{place}");
            }
            (Op::FreeNull, RawOp::Free { address: 0 }) | (Op::Mark { .. }, RawOp::Mark { .. }) => (),
            _ => panic!("{place}"),
        }
    }
    assert!(expected.values().all(|calls| calls.is_empty()), "seed {seed}: calls are missing");
}

fn resolve(raws: &[RawEvent]) -> (Vec<Event>, Quality) {
    let mut events = Vec::new();
    let mut resolver = Resolver::new(WaitLimits::default());
    for raw in raws {
        resolver.push(*raw, &mut |event| events.push(event)).unwrap();
    }
    let quality = resolver.finish(&mut |event| events.push(event)).unwrap();
    (events, quality)
}

/// What a common call is for [`Resolver::take_plain`].
fn plain(raw: &RawEvent) -> Option<Plain> {
    let (call, address, size) = match raw.op {
        RawOp::Alloc { address, size, align_log2: 0, call, .. } => match call {
            AllocCall::Malloc => (PlainCall::Malloc, address, size),
            AllocCall::Calloc => (PlainCall::Calloc, address, size),
            _ => return None,
        },
        RawOp::Free { address } => (PlainCall::Free, address, 0),
        _ => return None,
    };
    Plain::new(raw.time_ns, raw.thread, call, address, size.try_into().ok()?)
}

/// As [`resolve`], with common calls in batches.
fn resolve_at_once(raws: &[RawEvent], window: WaitLimits, random: &mut Random) -> (Vec<Event>, Quality) {
    let mut events = Vec::new();
    let mut emit = |event: Event| events.push(event);
    let mut resolver = Resolver::new(window);
    let mut rest = raws;
    while let Some((first, others)) = rest.split_first() {
        let most = 1 + random.below(400) as usize;
        let calls: Vec<Plain> = rest.iter().take(most).map_while(plain).collect();
        if calls.is_empty() {
            resolver.push(*first, &mut emit).unwrap();
            rest = others;
        } else {
            resolver.take_plain(&calls, &mut emit).unwrap();
            rest = &rest[calls.len()..];
        }
    }
    let quality = resolver.finish(&mut emit).unwrap();
    (events, quality)
}

/// Renumbers threads: unchanged, rising as when threads come and go, or so that many share a cache slot.
fn renumber(kind: u64, calls: &mut [Call]) {
    let many = calls.len();
    for (at, call) in calls.iter_mut().enumerate() {
        call.raw.thread = match kind {
            0 => call.raw.thread,
            1 => call.raw.thread + (300 * at / many) as u32,
            _ => call.raw.thread * 32,
        };
    }
}

/// Calls in batches give the same events and counts as calls one by one: with one thread, with many, with threads that
/// start and end; in order and out of order; dense and with pauses that end delays; with lost and with unknown frees.
#[test]
fn batches_give_the_same_events_as_single_calls() {
    let (mut repaired, mut parked) = (0, 0);
    for seed in 0..180 {
        let mut random = Random::new(seed);
        let threads = [1, 2, 3, 5, 17, 70][seed as usize % 6];
        let skew_ns = [0, 0, 30, 300][random.below(4) as usize];
        let frees_between = [0, 100][random.below(2) as usize];
        let pace = [1, 1, 40][random.below(3) as usize];
        let lost_percent = [0, 0, 1][random.below(3) as usize];
        let mut calls = program(&mut random, threads, 4_000, frees_between);
        calls.iter_mut().for_each(|call| call.raw.time_ns *= pace);
        renumber(seed / 6 % 3, &mut calls);
        calls.retain(|_| !random.chance(lost_percent));
        let mut raws = disturb(&mut random, &calls, skew_ns);
        if random.chance(30) {
            let at = raws.len() / 2;
            raws.insert(at, RawEvent::new(raws[at].time_ns, raws[at].thread, RawOp::Gap));
        }
        for window in [WaitLimits::DEFAULT, WaitLimits::UNLOCKED_STAMPS, WaitLimits::CERTAIN] {
            let (mut resolver, mut events) = (Resolver::new(window), Vec::new());
            let mut emit = |event: Event| events.push(event);
            raws.iter().for_each(|raw| resolver.push(*raw, &mut emit).unwrap());
            let quality = resolver.finish(&mut emit).unwrap();
            let (at_once, quality_at_once) = resolve_at_once(&raws, window, &mut random);
            let different = events.iter().zip(&at_once).position(|(one, other)| one != other);
            assert_eq!(different, None, "seed {seed}, {threads} threads, {window:?}");
            assert_eq!((events.len(), quality), (at_once.len(), quality_at_once), "seed {seed}");
            (repaired, parked) = (repaired + quality.reuse_repaired, parked + quality.parked);
        }
    }
    assert!(repaired > 100 && parked > 1000, "{repaired} repaired, {parked} waited: too little to show anything");
}

#[test]
fn the_true_order_is_left_alone() {
    for seed in 0..20 {
        let calls = program(&mut Random::new(seed), 4, 5_000, 0);
        let raws: Vec<RawEvent> = calls.iter().map(|call| call.raw).collect();
        let (events, quality) = resolve(&raws);
        check_against(&calls, &events, seed);
        assert_eq!(quality, Default::default(), "seed {seed}");
        assert!(events.iter().zip(&raws).all(|(event, raw)| event.time_ns == raw.time_ns));
    }
}

#[test]
fn reversed_pairs_are_reordered() {
    // One reversal at a time: two neighbours of different threads about one address change places.
    let mut reversed = 0;
    for seed in 0..20 {
        let calls = program(&mut Random::new(seed), 3, 5_000, 0);
        let mut raws: Vec<RawEvent> = calls.iter().map(|call| call.raw).collect();
        let mut at = 0;
        while at + 1 < raws.len() {
            let (first, second) = (raws[at], raws[at + 1]);
            let same_address = match (first.op, second.op) {
                (RawOp::Free { address: freed }, RawOp::Alloc { address, .. }) => freed == address,
                (RawOp::Realloc { old, new, .. }, RawOp::Alloc { address, .. }) => old == address && new != old,
                (RawOp::Alloc { address, .. }, RawOp::Free { address: freed }) => freed == address,
                _ => false,
            };
            if same_address && first.thread != second.thread {
                (raws[at].time_ns, raws[at + 1].time_ns) = (second.time_ns, first.time_ns);
                raws.swap(at, at + 1);
                reversed += 1;
                at += 20;
            }
            at += 1;
        }
        let (events, quality) = resolve(&raws);
        check_against(&calls, &events, seed);
        assert_eq!((quality.unknown_frees, quality.reuse_repaired), (0, 0), "seed {seed}");
        assert!(quality.parked > 0, "seed {seed}");
    }
    assert!(reversed > 500, "only {reversed} reversals were tried");
}

#[test]
fn disturbed_clocks_never_lose_an_event() {
    // After several reversals about one address, the true order may be unknowable. Even then every call appears once,
    // in the order of its thread, about a live object.
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let calls = program(&mut random, 5, 5_000, 0);
        let raws = disturb(&mut random, &calls, 300);
        let (events, quality) = resolve(&raws);
        let extra = events.len() - raws.len();
        assert_eq!(extra as u64, quality.reuse_repaired, "seed {seed}");
        let folder = tempfile::tempdir().unwrap();
        // The writer checks: it accepts only live objects, recycled ids and rising times.
        assert_eq!(crate::support::write_trace(&folder.path().join("t.hkt"), &events).events, events.len() as u64);
    }
}

fn raw(time_ns: u64, thread: u32, op: RawOp) -> RawEvent {
    RawEvent::new(time_ns, thread, op)
}

fn malloc(address: u64, size: u64) -> RawOp {
    RawOp::Alloc { address, size, align_log2: 0, call: AllocCall::Malloc, initial_touch: InitialTouch::None }
}

fn realloc(old: u64, new: u64, size: u64) -> RawOp {
    RawOp::Realloc { old, new, size, call: ReallocCall::Realloc, initial_touch: InitialTouch::None }
}

#[test]
fn every_null_case_of_realloc() {
    let (events, quality) = resolve(&[
        raw(1, 9, realloc(0, 0x10, 5)),
        raw(2, 9, realloc(0, 0, 6)),
        raw(3, 9, realloc(0x10, 0, 7)),
        raw(4, 9, realloc(0x10, 0x20, 8)),
        raw(5, 9, realloc(0x20, 0x20, 0)),
        raw(6, 9, realloc(0x20, 0, 0)),
    ]);
    let ops: Vec<Op> = events.iter().map(|event| event.op).collect();
    let (object, call, initial_touch) = (ObjectId(0), ReallocCall::Realloc, InitialTouch::None);
    assert_eq!(
        ops,
        [
            Op::Alloc { object, size: 5, align_log2: 0, call: AllocCall::Realloc, initial_touch },
            Op::AllocFailed { size: 6, align_log2: 0, call: AllocCall::Realloc },
            Op::ReallocFailed { object, size: 7, call },
            Op::Realloc { object, size: 8, call, initial_touch },
            Op::Realloc { object, size: 1, call, initial_touch },
            Op::ReallocFree { object, call },
        ]
    );
    assert_eq!(quality.reallocs_to_zero_kept, 1);
    assert!(events.iter().all(|event| event.thread == ThreadId(0)));
}

#[test]
fn unknown_frees_do_not_take_the_next_block_at_their_address() {
    let (events, quality) = resolve(&[
        raw(0, 1, RawOp::Free { address: 0x10 }),
        raw(50_000, 2, malloc(0x10, 1)),
        raw(50_100, 2, RawOp::Free { address: 0x10 }),
        raw(50_200, 1, realloc(0x30, 0x40, 9)),
        raw(90_000, 2, realloc(0x40, 0, 0)),
    ]);
    let ops: Vec<Op> = events.iter().map(|event| event.op).collect();
    assert_eq!(ops[0], Op::FreeUnknown);
    assert!(matches!(ops[1], Op::Alloc { .. }));
    assert!(matches!(ops[2], Op::Free { .. }));
    assert!(matches!(ops[3], Op::ReallocUnknown { size: 9, .. }));
    assert!(matches!(ops[4], Op::ReallocFree { .. }));
    assert_eq!(ops.len(), 5);
    assert_eq!(quality.unknown_frees, 2);
}

#[test]
fn a_free_that_was_never_seen_is_inserted() {
    let (events, quality) = resolve(&[
        raw(0, 1, malloc(0x10, 1)),
        raw(100, 1, malloc(0x10, 2)),
        raw(200, 1, RawOp::UsableSize { address: 0x99 }),
        raw(300, 1, RawOp::Mark { name: 0 }),
    ]);
    let ops: Vec<Op> = events.iter().map(|event| event.op).collect();
    assert!(matches!(ops[0], Op::Alloc { size: 1, .. }));
    assert_eq!(ops[1], Op::Free { object: ObjectId(0) });
    assert!(matches!(ops[2], Op::Alloc { size: 2, object: ObjectId(0), .. }));
    assert_eq!(ops[3], Op::Mark { name: 0 });
    assert_eq!((quality.reuse_repaired, quality.uses_dropped), (1, 1));
}

/// Thread 1 frees a block and gets its address again at once; thread 2 frees that second block, on a clock that runs
/// ahead. Without delayed frees, thread 2 ends the first block, and thread 1 waits for an allocation that only it can
/// make, and the address stays live until the end.
#[test]
fn a_free_stamped_early_does_not_end_the_block_before() {
    let mut resolver = Resolver::new(WaitLimits::UNLOCKED_STAMPS);
    let mut events = Vec::new();
    let mut emit = |event: Event| events.push(event);
    let (address, other) = (0x10, 0x20);
    let mut raws = vec![
        raw(0, 1, malloc(address, 8)),
        raw(709, 2, RawOp::Free { address }), // truly after 805
        raw(794, 1, RawOp::Free { address }),
        raw(805, 1, malloc(address, 9)),
    ];
    for step in 1..50u64 {
        raws.push(raw(1000 * step, 1, malloc(other, step)));
        raws.push(raw(1000 * step + 500, 2, RawOp::Free { address: other }));
    }
    for raw in raws {
        resolver.push(raw, &mut emit).unwrap();
    }
    let quality = resolver.finish(&mut emit).unwrap();
    assert_eq!((quality.unknown_frees, quality.reuse_repaired), (0, 0), "{events:#?}");
    let frees_of = |thread: u32| {
        events.iter().filter(|event| event.thread == ThreadId(thread) && matches!(event.op, Op::Free { .. })).count()
    };
    assert_eq!((events.len(), frees_of(0), frees_of(1)), (4 + 2 * 49, 1, 1 + 49));
}

/// A delayed free ends its block before the address is returned again, by any thread.
#[test]
fn a_delayed_free_precedes_the_reuse_of_its_address() {
    let mut resolver = Resolver::new(WaitLimits::UNLOCKED_STAMPS);
    let mut events = Vec::new();
    let mut emit = |event: Event| events.push(event);
    for raw in [
        raw(0, 1, malloc(0x10, 8)),
        raw(100, 1, RawOp::Free { address: 0x10 }),
        raw(150, 2, malloc(0x10, 9)),
        raw(9_000_000, 1, malloc(0x20, 10)),
    ] {
        resolver.push(raw, &mut emit).unwrap();
    }
    let quality = resolver.finish(&mut emit).unwrap();
    assert_eq!((quality.parked, quality.unknown_frees, quality.reuse_repaired), (0, 0, 0));
    let times: Vec<u64> = events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [0, 100, 150, 9_000_000], "{events:#?}");
}

/// Rounds in which one thread allocates an address and another frees it, after the first of its frees was not recorded.
fn rounds_after_a_lost_free(gap: bool) -> (Vec<Op>, Quality) {
    let malloc = |time_ns, size| {
        let (call, initial_touch) = (AllocCall::Malloc, InitialTouch::None);
        RawEvent::new(time_ns, 1, RawOp::Alloc { address: 0x1000, size, align_log2: 0, call, initial_touch })
    };
    let mut raws = vec![malloc(100, 1)];
    raws.extend(gap.then_some(RawEvent::new(1_000, 1, RawOp::Gap)));
    for round in 1..50 {
        raws.push(malloc(10_000 * round, 1 + round));
        raws.push(RawEvent::new(10_000 * round + 5_000, 2, RawOp::Free { address: 0x1000 }));
    }
    let (mut resolver, mut ops) = (Resolver::new(WaitLimits::UNLOCKED_STAMPS), Vec::new());
    let mut emit = |event: Event| ops.push(event.op);
    raws.into_iter().for_each(|raw| resolver.push(raw, &mut emit).unwrap());
    let quality = resolver.finish(&mut emit).unwrap();
    (ops, quality)
}

#[test]
fn after_a_gap_blocks_end_with_their_own_frees() {
    let (ops, quality) = rounds_after_a_lost_free(true);
    assert_eq!((quality.reuse_repaired, quality.unknown_frees, quality.parked), (1, 0, 0));
    assert_eq!(ops.len(), 1 + 1 + 2 * 49);
    for (round, pair) in (1..50).zip(ops[2..].chunks(2)) {
        assert!(matches!(pair, [Op::Alloc { size, .. }, Op::Free { .. }] if *size == 1 + round), "{round}: {pair:?}");
    }
    // Without a gap event, the first free that cannot be the awaited one shows it.
    let (without, quality) = rounds_after_a_lost_free(false);
    assert_eq!((quality.reuse_repaired, quality.unknown_frees), (1, 0), "{quality:?}");
    assert_eq!(without, ops);
}

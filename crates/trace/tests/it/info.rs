//! Compares the statistics of random events with those of naive implementations.

use crate::support::{Random, random_events, write_trace};
use hksim_trace::event::*;
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::{Info, LogQuantiles};
use std::collections::BTreeMap;

#[test]
fn statistics_of_random_events_agree_with_naive_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("info.hkt");
    for seed in 0..4 {
        let events = random_events(&mut Random::new(seed), 30_000);
        write_trace(&path, &events);
        let info = Info::of(&mut TraceReader::open(&path).unwrap()).unwrap();
        let count = |wanted: &dyn Fn(&Op) -> bool| events.iter().filter(|event| wanted(&event.op)).count() as u64;
        let called = |calls: &[AllocCall]| {
            count(&|op| matches!(op, Op::Alloc { call, .. } | Op::AllocFailed { call, .. } if calls.contains(call)))
        };
        assert_eq!(info.events, 30_000);
        assert_eq!(info.mallocs, called(&[AllocCall::Malloc]), "seed {seed}");
        assert_eq!(info.callocs, called(&[AllocCall::Calloc]), "seed {seed}");
        assert_eq!(info.aligned_allocs, called(&crate::support::ALLOC_CALLS[4..]), "seed {seed}");
        let resized = count(&|op| {
            use Op::*;
            matches!(op, Realloc { .. } | ReallocFree { .. } | ReallocUnknown { .. } | ReallocFailed { .. })
        });
        assert_eq!(info.reallocs, resized + called(&[AllocCall::Realloc, AllocCall::Reallocarray]), "seed {seed}");
        assert_eq!(info.frees, count(&|op| matches!(op, Op::Free { .. } | Op::FreeUnknown)), "seed {seed}");
        assert_eq!(info.frees_null, count(&|op| *op == Op::FreeNull));
        assert_eq!(info.unknown_frees, count(&|op| matches!(op, Op::FreeUnknown | Op::ReallocUnknown { .. })));
        assert_eq!(info.requests_failed, count(&|op| matches!(op, Op::AllocFailed { .. } | Op::ReallocFailed { .. })));
        assert_eq!(info.touch_events, count(&|op| matches!(op, Op::Touch { .. })));
        assert_eq!(info.marks, count(&|op| matches!(op, Op::Mark { .. })));
        assert_eq!(info.usable_size_calls, count(&|op| matches!(op, Op::UsableSize { .. })));
        check_live(&info, &events, seed);
        check_lives(&info, &events);
        check_sizes(&info, &events);
    }
}

/// Checks peaks, live objects at the end, frees across threads and sizes against a table of live objects.
fn check_live(info: &Info, events: &[Event], seed: u64) {
    let mut live: BTreeMap<u32, (u64, ThreadId)> = BTreeMap::new();
    let (mut bytes, mut bytes_peak, mut objects_peak, mut crossings, mut sizes) = (0u64, 0, 0, 0, Vec::new());
    for event in events {
        match event.op {
            Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                live.insert(object.0, (size, event.thread));
                bytes += size;
                sizes.push(size);
            }
            Op::Realloc { object, size, .. } => {
                let maker = live[&object.0].1;
                bytes = bytes + size - live.insert(object.0, (size, maker)).unwrap().0;
                sizes.push(size);
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                let (size, maker) = live.remove(&object.0).unwrap();
                bytes -= size;
                crossings += (maker != event.thread) as u64;
            }
            _ => (),
        }
        bytes_peak = bytes_peak.max(bytes);
        objects_peak = objects_peak.max(live.len() as u64);
    }
    assert_eq!((info.live_bytes_peak, info.live_objects_peak), (bytes_peak, objects_peak), "seed {seed}");
    assert_eq!((info.live_objects_end, info.cross_thread_frees), (live.len() as u64, crossings), "seed {seed}");
    sizes.sort_unstable();
    // Quantiles by nearest rank: the ceil(n * p / 100)-th smallest size.
    let quantile = |percent: usize| sizes[(sizes.len() * percent).div_ceil(100) - 1];
    let q = info.size_bytes;
    assert_eq!([q.p50, q.p90, q.p99, q.max], [50, 90, 99, 100].map(quantile), "seed {seed}");
    assert_eq!(info.threads, events.iter().map(|event| event.thread.0 + 1).max().unwrap());
}

/// Allocation, resizes and free of one object. An event is given with its index and the total bytes allocated until
/// then.
struct Life {
    alloc: (usize, Event, u64),
    sizes: Vec<u64>,
    /// The threads that resized it, and the bytes added.
    added: Vec<(ThreadId, u64)>,
    /// Its free, if it was freed.
    free: Option<(usize, Event, u64)>,
}

/// The lives of all objects.
fn lives(events: &[Event]) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut now: BTreeMap<u32, usize> = BTreeMap::new();
    let mut allocated = 0;
    for (at, event) in events.iter().enumerate() {
        match event.op {
            Op::Alloc { object, size, .. } | Op::ReallocUnknown { object, size, .. } => {
                allocated += size;
                now.insert(object.0, lives.len());
                lives.push(Life { alloc: (at, *event, allocated), sizes: vec![size], added: Vec::new(), free: None });
            }
            Op::Realloc { object, size, .. } => {
                let life = &mut lives[now[&object.0]];
                let added = size.saturating_sub(*life.sizes.last().unwrap());
                allocated += added;
                life.added.push((event.thread, added));
                life.sizes.push(size);
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                lives[now.remove(&object.0).unwrap()].free = Some((at, *event, allocated));
            }
            _ => (),
        }
    }
    lives
}

/// Checks lifetimes, resizes, threads and crossings against the lives of all objects.
fn check_lives(info: &Info, events: &[Event]) {
    let lives = lives(events);
    let dead: Vec<(&Life, &(usize, Event, u64))> =
        lives.iter().filter_map(|life| Some((life, life.free.as_ref()?))).collect();
    let allocations =
        |from: usize, to: usize| events[from + 1..to].iter().filter(|event| event.op.creates_object()).count();
    let within = |limit| dead.iter().filter(|(life, free)| allocations(life.alloc.0, free.0) < limit).count() as u64;
    let lifetimes = &info.lifetimes;
    assert_eq!(lifetimes.freed, dead.len() as u64);
    assert_eq!(
        (lifetimes.freed_before_next_allocation, lifetimes.freed_within_100_allocations),
        (within(1), within(100))
    );
    let close = |quantiles: LogQuantiles, mut values: Vec<u64>| {
        values.sort_unstable();
        let q = [(quantiles.p10, 10), (quantiles.p50, 50), (quantiles.p90, 90), (quantiles.p99, 99)];
        for (found, percent) in q {
            let exact = values[(values.len() * percent).div_ceil(100) - 1];
            assert!(found >= exact && found - exact <= exact / 16, "{percent} %: {found}, exactly {exact}");
        }
        assert_eq!(Some(&quantiles.max), values.last());
    };
    close(lifetimes.time_ns, dead.iter().map(|(life, free)| free.1.time_ns - life.alloc.1.time_ns).collect());
    close(lifetimes.allocated_bytes, dead.iter().map(|(life, free)| free.2 - life.alloc.2).collect());
    let pairs = || lives.iter().flat_map(|life| life.sizes.windows(2).map(|pair| (pair[0], pair[1])));
    let resizes = info.realloc_outcomes;
    assert_eq!(resizes.grown, pairs().filter(|(old, new)| new > old).count() as u64);
    assert_eq!(resizes.shrunk, pairs().filter(|(old, new)| new < old).count() as u64);
    assert_eq!(resizes.copied_bytes_max, pairs().map(|(old, new)| old.min(new)).sum::<u64>());
    assert_eq!(resizes.per_object_max as usize, lives.iter().map(|life| life.sizes.len() - 1).max().unwrap());
    let mut crossings: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for (life, free) in dead.iter().filter(|(life, free)| life.alloc.1.thread != free.1.thread) {
        *crossings.entry((life.alloc.1.thread.0, free.1.thread.0)).or_default() += 1;
    }
    assert_eq!(info.cross_thread_pairs[0].frees, *crossings.values().max().unwrap());
    for pair in &info.cross_thread_pairs {
        assert_eq!(pair.frees, crossings[&(pair.allocated_by, pair.freed_by)]);
    }
    for thread in &info.by_thread {
        let own = lives.iter().filter(|life| life.alloc.1.thread.0 == thread.thread);
        assert_eq!(thread.allocations, own.clone().count() as u64);
        let asked = own.map(|life| life.sizes[0]).sum::<u64>();
        let added = lives.iter().flat_map(|life| &life.added).filter(|(by, _)| by.0 == thread.thread);
        assert_eq!(thread.allocated_bytes, asked + added.map(|(_, bytes)| bytes).sum::<u64>());
        assert_eq!(thread.frees, dead.iter().filter(|(_, free)| free.1.thread.0 == thread.thread).count() as u64);
    }
}

/// Checks the histogram, the most frequent sizes and the timeline.
fn check_sizes(info: &Info, events: &[Event]) {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for event in events {
        if let Op::Alloc { size, .. } | Op::ReallocUnknown { size, .. } | Op::Realloc { size, .. } = event.op {
            *counts.entry(size).or_default() += 1;
        }
    }
    let mut below = 0;
    for bin in &info.size_histogram {
        let inside = counts.iter().filter(|(size, _)| (below..=bin.bytes_max).contains(*size));
        assert_eq!(bin.calls, inside.clone().map(|(_, calls)| calls).sum::<u64>());
        assert_eq!(bin.bytes, inside.map(|(size, calls)| size * calls).sum::<u64>());
        below = bin.bytes_max + 1;
    }
    assert_eq!(info.size_histogram.iter().map(|bin| bin.calls).sum::<u64>(), counts.values().sum::<u64>());
    assert_eq!(info.top_sizes[0].calls, *counts.values().max().unwrap());
    assert!(info.top_sizes.iter().all(|size| counts[&size.bytes] == size.calls));
    assert_eq!(info.timeline.len(), 64);
    let end = info.timeline.last().unwrap();
    assert_eq!((end.event, end.live_objects), (events.len() as u64, info.live_objects_end));
    assert!(info.timeline.iter().all(|point| point.time_ns == events[point.event as usize - 1].time_ns));
}

#[test]
fn the_fields_have_their_published_names() {
    let workload = Workload::RandomMixed(RandomMixed::default());
    let info = Info::of(workload.source().unwrap().as_mut()).unwrap();
    let json = serde_json::to_value(&info).unwrap();
    for (field, value) in [
        ("events", 1_000_000u64),
        ("mallocs", 500_061),
        ("frees", 499_939),
        ("live_bytes_peak", 91_602),
        ("live_objects_end", 122),
        ("callocs", 0),
        ("reallocs", 0),
        ("aligned_allocs", 0),
        ("frees_null", 0),
        ("threads", 1),
        ("cross_thread_frees", 0),
        ("unknown_frees", 0),
        ("duration_ns", 99_999_900),
    ] {
        assert_eq!(json[field], value, "{field}");
    }
    assert!(json["live_objects_peak"].is_u64());
    for field in ["p50", "p90", "p99", "max"] {
        assert!(json["size_bytes"][field].as_u64() >= Some(16), "{field}");
    }
    assert_eq!(json["size_bytes"]["max"], 1039);
}

/// Compares live bytes over time with the first, lowest, highest and last values that a pass over all events finds in
/// each span.
#[test]
fn live_bytes_over_time_keep_the_extremes_of_every_span() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.hkt");
    // Bursts of different density, with long pauses between them.
    let (mut events, mut time_ns) = (Vec::new(), 0);
    for burst in 0..40u64 {
        for step in 0..200u64 {
            let object = ObjectId(0);
            let size = 1000 + (burst * 7919 + step * 104_729) % 50_000;
            let (call, initial_touch) = (AllocCall::Malloc, InitialTouch::None);
            let op = match step % 2 {
                0 => Op::Alloc { object, size, align_log2: 0, call, initial_touch },
                _ => Op::Free { object },
            };
            events.push(Event::new(time_ns, ThreadId(0), op));
            time_ns += 1 + burst * 3;
        }
        time_ns += 1_000_000 * (burst % 5);
    }
    write_trace(&path, &events);
    let info = Info::of(&mut TraceReader::open(&path).unwrap()).unwrap();
    let span = |time_ns: u64| (time_ns as u128 * 256 / (info.duration_ns as u128 + 1)) as u64;
    let mut spans = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    for event in &events {
        let live = if let Op::Alloc { size, .. } = event.op { size } else { 0 };
        spans.entry(span(event.time_ns)).or_default().push(live);
    }
    let mut kept = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    for point in &info.over_time {
        assert_eq!(point.time_ns, events[point.event as usize - 1].time_ns);
        kept.entry(span(point.time_ns)).or_default().push(point.live_bytes);
    }
    assert!(info.over_time.is_sorted_by_key(|point| point.event));
    assert_eq!(kept.keys().collect::<Vec<_>>(), spans.keys().collect::<Vec<_>>());
    for (span, all) in &spans {
        let kept = &kept[span];
        let ends = |all: &[u64]| {
            (all.first().copied(), all.iter().min().copied(), all.iter().max().copied(), all.last().copied())
        };
        assert_eq!(ends(kept), ends(all), "span {span}");
        assert!(kept.len() <= 4);
    }
}

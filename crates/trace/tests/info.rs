//! Statistics against a naive count over random events.

mod support;

use hksim_trace::event::*;
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::hkt::TraceReader;
use hksim_trace::info::Info;
use std::collections::BTreeMap;
use support::{Random, random_events, write_trace};

#[test]
fn random_events_are_counted_like_a_naive_count() {
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
        assert_eq!(info.aligned, called(&support::ALLOC_CALLS[4..]), "seed {seed}");
        let resized = count(&|op| {
            use Op::*;
            matches!(op, Realloc { .. } | ReallocFree { .. } | ReallocUnknown { .. } | ReallocFailed { .. })
        });
        assert_eq!(info.reallocs, resized + called(&[AllocCall::Realloc, AllocCall::Reallocarray]), "seed {seed}");
        assert_eq!(info.frees, count(&|op| matches!(op, Op::Free { .. } | Op::FreeUnknown)), "seed {seed}");
        assert_eq!(info.free_null, count(&|op| *op == Op::FreeNull));
        assert_eq!(info.unknown_frees, count(&|op| matches!(op, Op::FreeUnknown | Op::ReallocUnknown { .. })));
        assert_eq!(info.failed, count(&|op| matches!(op, Op::AllocFailed { .. } | Op::ReallocFailed { .. })));
        assert_eq!(info.touches, count(&|op| matches!(op, Op::Touch { .. })));
        assert_eq!(info.marks, count(&|op| matches!(op, Op::Mark { .. })));
        assert_eq!(info.usable_size_calls, count(&|op| matches!(op, Op::UsableSize { .. })));
        check_live(&info, &events, seed);
    }
}

/// Peaks, leftovers, crossings and sizes, by a table that is summed anew at each event.
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
    // Nearest rank: the ceil(n * p / 100)-th smallest.
    let quantile = |percent: usize| sizes[(sizes.len() * percent).div_ceil(100) - 1];
    let q = info.sizes;
    assert_eq!([q.p50, q.p90, q.p99, q.max], [50, 90, 99, 100].map(quantile), "seed {seed}");
    assert_eq!(info.threads, events.iter().map(|event| event.thread.0 + 1).max().unwrap());
}

#[test]
fn the_fields_have_their_published_names() {
    let workload = Workload::RandomMixed(RandomMixed::default());
    let info = Info::of(workload.source().unwrap().as_mut()).unwrap();
    let json = serde_json::to_value(&info).unwrap();
    for (field, value) in [
        ("schema", 1u64),
        ("events", 1_000_000),
        ("mallocs", 500_061),
        ("frees", 499_939),
        ("live_bytes_peak", 91_602),
        ("live_objects_end", 122),
        ("callocs", 0),
        ("reallocs", 0),
        ("aligned", 0),
        ("free_null", 0),
        ("threads", 1),
        ("cross_thread_frees", 0),
        ("unknown_frees", 0),
        ("duration_ns", 99_999_900),
    ] {
        assert_eq!(json[field], value, "{field}");
    }
    assert!(json["live_objects_peak"].is_u64());
    for field in ["p50", "p90", "p99", "max"] {
        assert!(json["sizes"][field].as_u64() >= Some(16), "{field}");
    }
    assert_eq!(json["sizes"]["max"], 1039);
}

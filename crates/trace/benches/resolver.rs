//! Benchmarks the reordering merge on random_mixed with addresses, in raw events per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hksim_trace::event::{AllocCall, InitialTouch, Op};
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::resolve::{RawEvent, RawOp, Resolver, WaitLimits};
use std::hint::black_box;

/// The events of random_mixed, with an address for each id. Two threads alternate every 700 ns.
fn raw_events(ws: u32) -> Vec<RawEvent> {
    let parameters = RandomMixed { cycles: 1_000_000, ws, ..RandomMixed::default() };
    let mut source = Workload::RandomMixed(parameters).source().unwrap();
    let mut raws = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        raws.extend(batch.iter().map(|event| {
            let address = |id: u32| 0x7f12_3456_0000 + id as u64 * 48;
            let op = match event.op {
                Op::Alloc { object, size, .. } => RawOp::Alloc {
                    address: address(object.0),
                    size,
                    align_log2: 0,
                    call: AllocCall::Malloc,
                    initial_touch: InitialTouch::None,
                },
                Op::Free { object } => RawOp::Free { address: address(object.0) },
                _ => RawOp::Free { address: 0 },
            };
            RawEvent::new(event.time_ns, (event.time_ns / 700 % 2) as u32, op)
        }));
    }
    raws
}

fn resolver(criterion: &mut Criterion) {
    for (name, ws) in [("resolve ws=400", 400), ("resolve ws=1M", 1_000_000)] {
        let raws = raw_events(ws);
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10).throughput(Throughput::Elements(raws.len() as u64));
        group.bench_function("push", |bencher| {
            bencher.iter(|| {
                let mut resolver = Resolver::new(WaitLimits::default());
                let mut sum = 0u64;
                let mut emit = |event: hksim_trace::event::Event| sum = sum.wrapping_add(event.time_ns);
                raws.iter().for_each(|raw| resolver.push(*raw, &mut emit).unwrap());
                black_box(resolver.finish(&mut emit).unwrap());
                sum
            })
        });
        group.finish();
    }
}

criterion_group!(benches, resolver);
criterion_main!(benches);

//! Benchmarks reading and writing `.hkt` files against generating the same events, in events per second.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hksim_trace::generate::{RandomMixed, Server, Workload};
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::source::EventSource;
use std::hint::black_box;
use std::path::Path;

/// Reads all events. The sum keeps the compiler from removing the reads.
fn drain(source: &mut dyn EventSource) -> u64 {
    source.rewind().unwrap();
    let mut sum = 0u64;
    while let Some(batch) = source.next_batch().unwrap() {
        sum = sum.wrapping_add(black_box(batch).last().map_or(0, |event| event.time_ns));
    }
    sum
}

fn write(source: &mut dyn EventSource, path: &Path) {
    source.rewind().unwrap();
    let mut writer = TraceWriter::create(path, source.header()).unwrap();
    while let Some(batch) = source.next_batch().unwrap() {
        batch.iter().for_each(|event| writer.push(event).unwrap());
    }
    writer.finish(source.footer()).unwrap();
}

fn reader(criterion: &mut Criterion) {
    let random_mixed = |ws| Workload::RandomMixed(RandomMixed { cycles: 2_000_000, ws, ..RandomMixed::default() });
    let workloads = [
        ("random_mixed ws=400", random_mixed(400)),
        ("random_mixed ws=1M", random_mixed(1_000_000)),
        ("server", Workload::Server(Server::default())),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.hkt");
    for (name, workload) in workloads {
        let mut source = workload.source().unwrap();
        write(source.as_mut(), &path);
        let events = source.summary().events;
        let bytes = std::fs::metadata(&path).unwrap().len();
        println!("{name}: {events} events, {:.3} bytes per event", bytes as f64 / events as f64);
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10).throughput(Throughput::Elements(events));
        let mut file = TraceReader::open(&path).unwrap();
        group.bench_function("read", |bencher| bencher.iter(|| drain(&mut file)));
        group.bench_function("generate", |bencher| bencher.iter(|| drain(source.as_mut())));
        group.bench_function("write", |bencher| bencher.iter(|| write(source.as_mut(), &path)));
        group.finish();
    }
}

criterion_group!(benches, reader);
criterion_main!(benches);

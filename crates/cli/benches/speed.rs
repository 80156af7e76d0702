//! Speed of the simulator and of real allocators on random_mixed (20M cycles, 400 slots), in events per second.
//!
//! `sim` and `native` are complete runs from the trace file: reader, driver, and either the simulated kernel with its
//! report or real memory from mmap. `read` is the reader alone. `mimalloc` and `glibc` replay the same events, decoded
//! beforehand. Each allocation is followed by a write of its first byte, and their heaps stay warm between passes.

use std::ffi::c_void;
use std::hint::black_box;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use hksim_engine::{Driver, TouchRule};
use hksim_linux_mm::KernelConfig;
use hksim_native::{MmapMemory, Syscalls};
use hksim_policy::Allocator;
use hksim_policy::Policy;
use hksim_sim::simulate::{Marks, SimConfig, simulate};
use hksim_trace::event::Op;
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::source::EventSource;

const CYCLES: u64 = 20_000_000;
const SLOTS: u32 = 400;

/// One decoded call: `malloc(bytes)`, or `free` if `bytes` is 0, which random_mixed never requests.
#[derive(Clone, Copy)]
struct Call {
    object: u32,
    bytes: u32,
}

/// The two functions of an allocator.
#[derive(Clone, Copy)]
struct Malloc {
    name: &'static str,
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

const MALLOCS: [Malloc; 2] = [
    Malloc { name: "mimalloc", malloc: libmimalloc_sys::mi_malloc, free: libmimalloc_sys::mi_free },
    Malloc { name: "glibc", malloc: libc::malloc, free: libc::free },
];

fn generate(path: &Path) {
    let parameters = RandomMixed { cycles: CYCLES, ws: SLOTS, ..RandomMixed::default() };
    let mut source = Workload::RandomMixed(parameters).source().expect("the parameters are in range");
    let mut writer = TraceWriter::create(path, source.header()).expect("a temporary file");
    while let Some(batch) = source.next_batch().expect("a generator") {
        batch.iter().for_each(|event| writer.push(event).expect("free disk space"));
    }
    writer.finish(source.footer()).expect("free disk space");
}

/// The calls of the trace, 8 bytes each.
fn decode(reader: &mut TraceReader) -> Vec<Call> {
    let mut calls = Vec::with_capacity(reader.summary().events as usize);
    while let Some(batch) = reader.next_batch().expect("a complete trace") {
        calls.extend(batch.iter().map(|event| match event.op {
            Op::Alloc { object, size, .. } => Call { object: object.0, bytes: size as u32 },
            Op::Free { object } => Call { object: object.0, bytes: 0 },
            other => unreachable!("random_mixed has no {other:?}"),
        }));
    }
    calls
}

fn read(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let mut sum = 0u64;
    while let Some(batch) = reader.next_batch().expect("a complete trace") {
        sum = sum.wrapping_add(black_box(batch).last().map_or(0, |event| event.time_ns));
    }
    sum
}

fn sim(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let setup = SimConfig {
        addresses: hksim_sim::Addresses::default(),
        policy: Policy::default(),
        memory_policy: Default::default(),
        touch: TouchRule::Recorded,
        kernel: KernelConfig::default(),
        tlb: None,
        forks: Vec::new(),
        file: None,
    };
    let simulated = simulate(&mut reader, &setup, Marks::Skip, &|_| {}).expect("a valid design");
    simulated.report.installs.total
}

fn native(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let plan = Policy::default().prepare().expect("a valid design");
    let memory = MmapMemory::new(plan.layout, Syscalls).expect("address space");
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    let (threads, objects) = (reader.summary().threads, reader.summary().objects_peak);
    let mut driver = Driver::new(allocator, threads, objects, TouchRule::Recorded);
    while let Some(batch) = reader.next_batch().expect("a whole trace") {
        batch.iter().for_each(|event| driver.step(event).expect("one thread"));
    }
    driver.placement()
}

/// Performs the calls, then frees the remaining blocks.
fn replay(calls: &[Call], live: &mut [*mut c_void], on: Malloc) {
    for &Call { object, bytes } in calls {
        let block = &mut live[object as usize];
        if bytes == 0 {
            // SAFETY: a live block of this allocator; the trace frees each live block once.
            unsafe { (on.free)(*block) };
            *block = ptr::null_mut();
        } else {
            // SAFETY: `malloc` takes any size, and the block has at least one byte.
            unsafe {
                *block = (on.malloc)(bytes as usize);
                assert!(!block.is_null(), "{} has no memory left", on.name);
                block.cast::<u8>().write_volatile(0xA5);
            }
        }
    }
    for block in live {
        // SAFETY: live blocks, and null, which `free` ignores.
        unsafe { (on.free)(std::mem::replace(block, ptr::null_mut())) };
    }
}

fn speed(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("random_mixed.hkt");
    generate(&path);
    let mut reader = TraceReader::open(&path).expect("a trace");
    let mut live = vec![ptr::null_mut(); reader.summary().objects_peak as usize];
    let calls = decode(&mut reader);
    // SAFETY: returns a number.
    println!("mimalloc version {}", unsafe { libmimalloc_sys::mi_version() });
    let mut group = criterion.benchmark_group("random_mixed ws=400");
    group.sampling_mode(SamplingMode::Flat).sample_size(15).measurement_time(Duration::from_secs(8));
    group.throughput(Throughput::Elements(calls.len() as u64));
    group.bench_function("sim", |bencher| bencher.iter(|| sim(&path)));
    group.bench_function("native", |bencher| bencher.iter(|| native(&path)));
    group.bench_function("read", |bencher| bencher.iter(|| read(&path)));
    for malloc in MALLOCS {
        group.bench_function(malloc.name, |bencher| bencher.iter(|| replay(&calls, &mut live, malloc)));
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);

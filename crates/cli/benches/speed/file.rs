//! Complete runs from a trace file.

use std::hint::black_box;
use std::path::Path;

use hksim_engine::{Driver, TouchRule};
use hksim_native::{MmapMemory, Syscalls};
use hksim_policy::{Allocator, Policy};
use hksim_sim::simulate::SimConfig;
use hksim_sim::{Input, sweep};
use hksim_trace::hkt::{Batch, TraceReader};
use hksim_trace::source::EventSource;

use crate::minimal::Minimal;

/// Designs of different placements, the default first. One thread simulates as many in one pass.
pub const SUPERSLABS_BYTES: [u64; 4] = [2 << 20, 512 << 10, 1 << 20, 4 << 20];

/// Simulates the first designs of [`SUPERSLABS_BYTES`] on the current rayon pool. Returns the installs of all.
pub fn sim(path: &Path, designs: usize) -> u64 {
    let config = |superslab_bytes: u64| SimConfig {
        policy: Policy { superslab_bytes, ..Policy::default() },
        touch: TouchRule::Recorded,
        ..SimConfig::default()
    };
    let path = path.to_path_buf();
    let open = Box::new(move || Ok(Box::new(TraceReader::open(&path)?) as Box<dyn EventSource + Send>));
    let configs: Vec<SimConfig> = SUPERSLABS_BYTES[..designs].iter().copied().map(config).collect();
    let reports = sweep(&Input { file: None, open }, &configs, &()).expect("valid designs");
    reports.iter().map(|report| report.installs.total).sum()
}

/// Runs the allocator on memory from mmap. Returns the digest of the placement.
pub fn native(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let plan = Policy::default().prepare().expect("a valid design");
    let memory = MmapMemory::new(plan.layout, Syscalls).expect("address space");
    let allocator = Allocator::new(memory, plan.geometry, plan.policy, &plan.layout);
    let (threads, objects) = (reader.summary().threads, reader.summary().objects_peak);
    let mut driver = Driver::new(allocator, threads, objects, TouchRule::Recorded);
    let mut batch = Batch::new();
    while reader.next_into(&mut batch).expect("a whole trace") {
        let mut events = batch.read();
        driver.step_common(&mut events, batch.len(), |_| {}).expect("one thread");
        assert_eq!(events.passed(), batch.len(), "random_mixed has common events only");
    }
    driver.placement()
}

/// Runs the minimal simulator, while another core decodes. Returns the first touches of pages.
pub fn minimal(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let mut minimal = Minimal::new(reader.summary().objects_peak as usize);
    let (mut now, mut next) = (Batch::new(), Batch::new());
    let mut more = reader.next_into(&mut now).expect("a complete trace");
    while more {
        let fill = || reader.next_into(&mut next).expect("a complete trace");
        (_, more) = rayon::join(|| minimal.take(&now), fill);
        std::mem::swap(&mut now, &mut next);
    }
    minimal.touches
}

/// Reads all events, by column. Returns the time of the last.
pub fn read(path: &Path) -> u64 {
    let mut reader = TraceReader::open(path).expect("a trace");
    let mut batch = Batch::new();
    let mut last_ns = 0;
    while reader.next_into(&mut batch).expect("a complete trace") {
        last_ns = black_box(&batch).read().time_ns_after(batch.len());
    }
    last_ns
}

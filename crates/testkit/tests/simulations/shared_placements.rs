//! Every row of a sweep equals the simulation of its design alone, whichever designs share a placement.
//!
//! The oracle is `simulate` with a single design: no follower, no group. Kernels, paging policies and placements are
//! drawn from the whole policy space; the seed is printed.

use crate::designs::random_policy;
use crate::written::written;
use hksim_engine::TouchRule;
use hksim_linux_mm::{KernelConfig, KernelVersion, Rules, SizeMode, ThpConfig, ThpMode};
use hksim_policy::Policy;
use hksim_policy::vocabulary::{Align, Header as BlockHeader, Purge};
use hksim_sim::simulate::Marks;
use hksim_sim::sweep::{Input, SweepProgress};
use hksim_sim::{Counted, SimConfig, simulate, sweep};
use hksim_testkit::events::random_trace;
use hksim_testkit::{Random, test_scale};
use hksim_trace::hkt::TraceReader;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// A policy with the placement of one policy and the paging of another. Most purge like the first, since others part
/// from it soon.
fn mixed(placement: &Policy, paging: &Policy, random: &mut Random) -> Policy {
    let purge = if random.per_mille(700) { placement } else { paging };
    Policy {
        huge: paging.huge,
        huge_page_bytes: paging.huge_page_bytes,
        huge_heaps: paging.huge_heaps,
        huge_fill_percent: paging.huge_fill_percent,
        prefault: paging.prefault,
        prefault_scope: paging.prefault_scope,
        purge: purge.purge,
        purge_spans: purge.purge_spans,
        ..*placement
    }
}

/// A policy whose placement can be shared, in most cases.
fn random_placement(random: &mut Random) -> Policy {
    let policy = random_policy(random);
    if random.per_mille(200) {
        return policy;
    }
    let header = random.pick(&[BlockHeader::None, BlockHeader::Full]);
    Policy { align: Align::Arena, header, purge: random.pick(&[Purge::DontNeed, Purge::None, Purge::Unmap]), ..policy }
}

fn random_kernel(random: &mut Random) -> KernelConfig {
    let mut thp = ThpConfig::new(random.pick(&[ThpMode::Always, ThpMode::Madvise, ThpMode::Never]));
    if random.per_mille(300) {
        thp.sizes[4] = SizeMode::Madvise;
    }
    let rules = Rules::of(random.pick(&KernelVersion::ALL));
    KernelConfig { thp, rules, hugetlb_pool_pages: random.pick(&[None, Some(0), Some(3)]), ..KernelConfig::default() }
}

fn random_designs(random: &mut Random) -> Vec<SimConfig> {
    let placements = [random_placement(random), random_placement(random)];
    let touch = random.pick(&[TouchRule::All, TouchRule::First, TouchRule::AllAtDeath]);
    // Designs with equal kernels share one, until they ask it for different operations.
    let kernels = [random_kernel(random), random_kernel(random)];
    let mut configs = Vec::new();
    while configs.len() < 24 {
        let policy = mixed(&random.pick(&placements), &random_policy(random), random);
        if policy.prepare().is_err() {
            continue;
        }
        let kernel = if random.per_mille(200) { random_kernel(random) } else { kernels[random.pick(&[0, 1])].clone() };
        let counted = if random.per_mille(20) { Counted::Paths } else { Counted::Pages };
        configs.push(SimConfig { policy, touch, kernel, counted, ..SimConfig::default() });
    }
    configs
}

fn without_time(row: impl serde::Serialize) -> Value {
    let mut row = serde_json::to_value(row).expect("a report is JSON");
    row.as_object_mut().expect("an object").remove("elapsed_s");
    row
}

#[derive(Default)]
struct Work {
    expected: AtomicU64,
    done: AtomicU64,
}

impl SweepProgress for Work {
    fn expect(&self, events: u64) {
        self.expected.fetch_add(events, Ordering::Relaxed);
    }

    fn done(&self, events: u64) {
        self.done.fetch_add(events, Ordering::Relaxed);
    }
}

#[test]
fn rows_of_a_sweep_equal_single_simulations() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut placements, mut rows) = (0, 0);
    for seed in 0x5B_0000..0x5B_0000 + 5 * test_scale() {
        let mut random = Random::new(seed);
        let trace = random_trace(seed, 4_000, 1 + (seed % 4) as u32, random.pick(&[2_000, 100_000, 6 << 20]));
        let path = written(folder.path(), seed, &trace);
        let configs = random_designs(&mut random);
        let opened = path.clone();
        let open = Box::new(move || Ok(Box::new(TraceReader::open(&opened)?) as Box<_>));
        let work = Work::default();
        let swept = sweep(&Input { file: None, open }, &configs, &work).unwrap_or_else(|error| panic!("{error}"));
        for (number, (config, row)) in configs.iter().zip(&swept).enumerate() {
            let mut source = TraceReader::open(&path).expect("a trace");
            let single = simulate(&mut source, config, Marks::Skip, &|_| {}).expect("a valid design");
            let (expected, found) = (without_time(&single.report), without_time(row));
            assert_eq!(expected, found, "seed {seed:#x}, row {number}: {config:?}");
        }
        assert_eq!(work.expected.load(Ordering::Relaxed), work.done.load(Ordering::Relaxed), "seed {seed:#x}");
        placements += work.done.load(Ordering::Relaxed) / (trace.events.len() as u64 + u64::from(trace.threads));
        rows += configs.len() as u64;
    }
    eprintln!("{rows} rows from {placements} placements");
    assert!(3 * placements < 2 * rows, "few placements were shared");
}

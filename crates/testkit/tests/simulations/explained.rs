//! Explanations of simulations: the sums over every key equal the total, and explaining changes no result.
//!
//! The oracle is `simulate` without a log of installs. Designs are drawn from the whole policy space; the seed is
//! printed.

use std::collections::BTreeMap;

use crate::designs::random_policy;
use crate::written::written;
use hksim_engine::TouchRule;
use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
use hksim_sim::accounting::Reason;
use hksim_sim::explain::{CellState, Explained, explain};
use hksim_sim::simulate::Marks;
use hksim_sim::{SimConfig, SimReport, simulate};
use hksim_testkit::events::random_trace;
use hksim_testkit::{Random, test_scale};
use hksim_trace::hkt::TraceReader;

fn random_config(random: &mut Random) -> SimConfig {
    let thp = ThpConfig::new(random.pick(&[ThpMode::Always, ThpMode::Madvise, ThpMode::Never]));
    SimConfig {
        policy: random_policy(random),
        touch: random.pick(&[TouchRule::All, TouchRule::First, TouchRule::AllAtDeath]),
        kernel: KernelConfig { thp, ..KernelConfig::default() },
        ..SimConfig::default()
    }
}

/// The fields that must not depend on the log, as JSON.
fn comparable(report: &SimReport) -> serde_json::Value {
    serde_json::to_value(SimReport { elapsed_s: 0.0, ..report.clone() }).expect("a report is JSON")
}

fn check_sums(explained: &Explained, seed: u64) {
    let total = explained.report.installs.total;
    let breakdown = &explained.breakdown;
    let sums = [
        ("reason", breakdown.reason.values().sum::<u64>()),
        ("use", breakdown.page_use.values().sum()),
        ("SuperSlab", breakdown.superslab.values().sum()),
        ("site", breakdown.site.values().sum()),
        ("thread", breakdown.thread.values().sum()),
        ("phase", breakdown.phase.values().sum()),
        ("time", breakdown.time.iter().sum()),
        ("causes", breakdown.causes.values().sum()),
    ];
    for (key, sum) in sums {
        assert_eq!(sum, total, "seed {seed}: sum by {key}; {:?}", explained.report.policy);
    }
    let by_reason: BTreeMap<Reason, u64> = Reason::ALL
        .into_iter()
        .map(|reason| (reason, explained.report.installs.by_reason.of(reason)))
        .filter(|&(_, installs)| installs > 0)
        .collect();
    assert_eq!(breakdown.reason, by_reason, "seed {seed}");
}

/// The last sample of the map has as many resident pages as the report, if each row is one page.
fn check_last_sample(explained: &Explained, seed: u64) {
    if explained.page_map.cell_pages > 1 {
        return;
    }
    let rows = &explained.page_map.rows;
    let is_present = |state: &&CellState| matches!(state, CellState::Resident | CellState::Huge | CellState::Refaulted);
    let present = rows.iter().filter_map(|row| row.states.last()).filter(is_present).count() as u64;
    let resident_bytes = present * 4096;
    // Zero pages are present, but not resident.
    assert!(resident_bytes >= explained.report.rss_bytes_end, "seed {seed}: {resident_bytes}");
}

#[test]
fn every_key_sums_to_the_total_and_nothing_else_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = 4_200;
    println!("seeds from {first}");
    let mut with_refaults = 0;
    for seed in first..first + 40 * test_scale() {
        let mut random = Random::new(seed);
        let trace = random_trace(seed, 2_000, 1 + (seed % 3) as u32, random.pick(&[2_000, 100_000, 3 << 20]));
        let path = written(folder.path(), seed, &trace);
        let config = random_config(&mut random);
        if config.policy.prepare().is_err() {
            continue;
        }
        let open = || TraceReader::open(&path).expect("a trace");
        let (plain, explained) =
            (simulate(&mut open(), &config, Marks::Skip, &|_| {}), explain(&mut open(), &config, None));
        let (plain, explained) = match (plain, explained) {
            (Ok(plain), Ok(explained)) => (plain, explained),
            (Err(plain), Err(explained)) => {
                assert_eq!(plain.to_string(), explained.to_string(), "seed {seed}");
                continue;
            }
            (plain, explained) => panic!("seed {seed}: {:?} and {:?}", plain.err(), explained.err()),
        };
        assert_eq!(comparable(&plain.report), comparable(&explained.report), "seed {seed}");
        check_sums(&explained, seed);
        check_last_sample(&explained, seed);
        with_refaults += usize::from(explained.report.installs.by_reason.refault_after_purge > 0);
    }
    assert!(with_refaults > 2, "few designs purge what is used again: {with_refaults}");
}

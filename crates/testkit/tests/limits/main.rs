//! Memory limits, predicted and met: random traces and designs are replayed in a real memory control group, and the
//! kernel kills them in the predicted event or not at all. This program has its own test runner, because the children
//! of a replay execute it again.
//!
//! `HKSIM_LIMITS_SEED` and `HKSIM_LIMITS_PROGRAMS` choose other programs.

use std::process::ExitCode;

use hksim_engine::TouchRule;
use hksim_explore::flags::table::find;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::memory_limit::least_limit_bytes;
use hksim_explore::runs::setup;
use hksim_linux_mm::{KernelConfig, MemoryLimit, PAGE_BYTES};
use hksim_policy::Policy;
use hksim_replay::{CHILD_ARGUMENT, LimitedReplay, ReplaySpec, Target, child_main, replay_limited};
use hksim_sim::{SimConfig, sweep};
use hksim_testkit::Random;
use hksim_testkit::cases::{self, Case};
use hksim_trace::generate::{RandomMixed, Server, Workload};

const CASES: &[(&str, Case)] = &[("replays_are_killed_where_it_was_predicted", replays_are_killed_where_predicted)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        return child_main();
    }
    cases::run(CASES, &arguments)
}

/// Flags of the designs with their words. hugetlb is not charged to the group.
const DESIGNS: [(&str, &[&str]); 4] = [
    ("huge", &["never", "thp", "collapse"]),
    ("purge", &["none", "dontneed", "free"]),
    ("superslab", &["1M", "2M", "4M"]),
    ("slab", &["64K", "32K"]),
];

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|word| word.parse().ok()).unwrap_or(default)
}

fn design(random: &mut Random) -> RunConfig {
    let mut config = RunConfig::of(Policy::DEFAULT);
    for (name, words) in DESIGNS {
        let word = words[random.below(words.len() as u64) as usize];
        find(name).expect("a flag").set(&mut config, word).unwrap_or_else(|why| panic!("--{name} {word}: {why}"));
    }
    config
}

fn workload(random: &mut Random) -> Workload {
    let seed = 1 + random.below(1 << 20);
    match random.below(2) {
        0 => Workload::RandomMixed(RandomMixed {
            cycles: 20_000,
            ws: 1_000 + random.below(9_000) as u32,
            seed: seed as u32,
            max: 200 + random.below(4_000) as u32,
            ..RandomMixed::default()
        }),
        _ => Workload::Server(Server { live: (4 + random.below(12)) << 20, threads: 2, events: 200_000, seed }),
    }
}

/// The limits of a program: around the least one that it survives, and below.
fn limits(least_bytes: u64, random: &mut Random) -> [u64; 5] {
    let pages = least_bytes / PAGE_BYTES;
    [pages, pages - 1, pages + 1 + random.below(pages), pages / 2, 1 + random.below(pages)]
        .map(|pages| pages * PAGE_BYTES)
}

fn predicted(trace: &Trace, setup: &SimConfig, limit_bytes: u64) -> MemoryLimit {
    let kernel = KernelConfig { memory_limit_bytes: Some(limit_bytes), ..setup.kernel.clone() };
    let reports = sweep(&trace.input, &[SimConfig { kernel, ..setup.clone() }], &()).expect("a simulation");
    reports.into_iter().next().and_then(|report| report.memory_limit).expect("there is a limit")
}

fn replays_are_killed_where_predicted() -> Result<(), String> {
    let (seed, programs) = (number("HKSIM_LIMITS_SEED", 1), number("HKSIM_LIMITS_PROGRAMS", 6));
    let mut random = Random::new(seed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut alike, mut different) = (0, Vec::new());
    for program in 0..programs {
        let (workload, config) = (workload(&mut random), design(&mut random));
        let path = folder.path().join(format!("{program}.hkt"));
        Trace::workload(workload.clone()).expect("a workload").write(&path).expect("a trace");
        let trace = Trace::file(&path).expect("a trace");
        let setup = SimConfig {
            touch: TouchRule::Recorded,
            ..setup(&config, &trace, BaseKernel::Host).map_err(|why| why.to_string())?
        };
        let least_bytes = least_limit_bytes(&trace, &setup).expect("a simulation");
        let spec = ReplaySpec::ordered(path, Target::Native(Box::new(config.policy)), setup.touch);
        let spec = ReplaySpec { memory_policy: setup.memory_policy, ..spec };
        for limit_bytes in limits(least_bytes, &mut random) {
            let predicted = predicted(&trace, &setup, limit_bytes);
            let measured = replay_limited(&spec, limit_bytes).unwrap_or_else(|why| panic!("{why}"))?;
            let expected = predicted.event.map_or(LimitedReplay::Survived, |event| LimitedReplay::Killed { event });
            eprintln!(
                "seed {seed}, program {program}: {} {}, {} of {} pages: {expected:?}, {measured:?}",
                workload.name(),
                config.native_words(),
                limit_bytes / PAGE_BYTES,
                least_bytes / PAGE_BYTES
            );
            match measured == expected {
                true => alike += 1,
                false => different.push((program, limit_bytes / PAGE_BYTES, expected, measured)),
            }
        }
    }
    eprintln!("seed {seed}: {alike} of {} as predicted", alike + different.len());
    assert!(different.is_empty(), "seed {seed}: {different:?}");
    Ok(())
}

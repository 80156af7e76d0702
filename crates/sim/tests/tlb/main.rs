//! The TLB models compared with an independent C program, access by access.

mod stacks;

use std::fmt::Write as _;

use hksim_sim::tlb::{Array, Geometry, Hit, Level, LiveMix, PageSize, TwoLevel};
use hksim_testkit::{CProgram, Random};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tlb/naive.c");

#[derive(Clone, Copy)]
enum Step {
    Access(u64, PageSize),
    Invalidate(u64, u64),
}

/// Random accesses to `pages` pages, with runs, jumps and a hot part. Huge pages map some of the 2 MiB ranges.
fn stream(seed: u64, pages: u64, length: usize, invalidations: bool) -> Vec<Step> {
    let mut random = Random::new(seed);
    let huge_share = random.below(5);
    let mut page = 0;
    let steps = (0..length).map(|_| {
        if invalidations && random.below(300) == 0 {
            let start = random.below(pages);
            return Step::Invalidate(start, start + random.below(1024));
        }
        page = match random.below(8) {
            0..3 => page,
            3 => (page + 1) % pages,
            4..6 => random.below(pages / 16 + 1),
            _ => random.below(pages),
        };
        let is_huge = (page / 512 * 0x9E37_79B9) >> 7 & 3 < huge_share;
        Step::Access(page, if is_huge { PageSize::Huge } else { PageSize::Base })
    });
    steps.collect()
}

fn text_of(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match *step {
            Step::Access(page, size) => writeln!(text, "a {page} {}", u8::from(size == PageSize::Huge)),
            Step::Invalidate(start, end) => writeln!(text, "i {start} {end}"),
        }
        .expect("writing to a string");
    }
    text
}

fn shape_of(name: &str, level: Level) -> String {
    let (base, huge) = match level {
        Level::Shared(array) => (array, None),
        Level::Split { base, huge } => (base, Some(huge)),
    };
    let (sets, ways) = huge.map_or((0, 0), |array| (array.sets(), array.ways()));
    format!("shape {name} {} {} {sets} {ways}\n", base.sets(), base.ways())
}

fn simulate(geometry: &Geometry, steps: &[Step]) -> String {
    let mut tlb = TwoLevel::new(geometry, &[]);
    let mut hits = String::new();
    for step in steps {
        match *step {
            Step::Access(page, size) => hits.push(match tlb.access(page, size) {
                Hit::L1 => '1',
                Hit::L2 => '2',
                Hit::Miss => 'm',
            }),
            Step::Invalidate(start, end) => tlb.invalidate(start..end),
        }
    }
    let count = |letter| hits.matches(letter).count() as u64;
    let counts = tlb.counts();
    assert_eq!((counts.l1_hits, counts.l2_hits, counts.misses), (count('1'), count('2'), count('m')));
    assert_eq!(counts.accesses(), hits.len() as u64);
    hits
}

#[test]
fn every_core_hits_and_misses_like_the_naive_program() {
    let program = match CProgram::compile(SOURCE, env!("CARGO_TARGET_TMPDIR")) {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    for (at, geometry) in Geometry::all().iter().enumerate() {
        for (round, pages) in [200, 3000, 40_000, 2_000_000].into_iter().enumerate() {
            let seed = (at * 10 + round) as u64 + 1;
            let steps = stream(seed, pages, 12_000, round % 2 == 1);
            let shapes = shape_of("L1", geometry.l1) + &shape_of("L2", geometry.l2);
            let expected = program.output(&[], &(shapes + &text_of(&steps)));
            let differs = simulate(geometry, &steps).chars().zip(expected.chars()).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{}, seed {seed}: first access that differs", geometry.name);
        }
    }
}

/// Mattson's stack property: a fully associative LRU array of n entries hits exactly the accesses with a stack distance
/// below n.
#[test]
fn a_fully_associative_array_hits_at_stack_distances_below_its_size() {
    let program = match CProgram::compile(SOURCE, env!("CARGO_TARGET_TMPDIR")) {
        Ok(program) => program,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    for seed in 1..4 {
        let steps = stream(seed, 2000, 8000, false);
        let output = program.output(&["stack"], &text_of(&steps));
        let distances: Vec<i64> = output.lines().map(|line| line.parse().expect("a distance")).collect();
        for entries in [1, 2, 7, 48, 96, 500] {
            let array = Array::fully_associative(entries).expect("one set");
            let geometry = Geometry {
                l1: Level::Shared(array),
                l2: Level::Shared(array),
                ..*Geometry::named("zen5").expect("known")
            };
            let hits = simulate(&geometry, &steps);
            let expected: String = distances
                .iter()
                .map(|&distance| if (0..i64::from(entries)).contains(&distance) { '1' } else { 'm' })
                .collect();
            // An access that misses the first level may still hit the second level. It has the same size but sees fewer
            // accesses.
            let first_level = hits.replace('2', "m");
            assert!(first_level == expected, "seed {seed}, {entries} entries");
        }
    }
}

#[test]
fn reach_is_entries_times_page_size() {
    let zen5 = Geometry::named("zen5").expect("known");
    let live = LiveMix { base_pages: 1000, huge_pages: 40 };
    let l1 = zen5.l1.reach(live);
    assert_eq!((l1.base_bytes, l1.huge_bytes), (96 * 4096, 96 << 21));
    assert_eq!(l1.live_bytes_covered, (40 << 21) + 56 * 4096);
    let l2 = zen5.l2.reach(live);
    assert_eq!((l2.live_bytes_covered, l2.live_share_covered), (live.bytes(), 1.0));
    let skylake = Geometry::named("skylake-sp").expect("known").l1.reach(live);
    assert_eq!(skylake.live_bytes_covered, (32 << 21) + 64 * 4096);
    let fraction = skylake.live_share_covered;
    assert!((fraction - 67_371_008.0 / 87_982_080.0).abs() < 1e-12, "{fraction}");
    assert_eq!(zen5.l1.reach(LiveMix::default()).live_share_covered, 1.0);
}

#[test]
fn invalid_array_shapes_are_refused() {
    for (entries, ways) in [(0, 0), (64, 0), (64, 5), (96, 4), (0, 4)] {
        assert!(Array::new(entries, ways).is_err(), "{entries} entries, {ways} ways");
    }
    assert_eq!(Array::new(96, 6).map(Array::sets), Ok(16));
}

//! Random programs on random designs. The tests compare the policy with the independent naive model, on a memory that
//! checks every access. A failure names the seed that reproduces it.

use hksim_policy::vocabulary::{Huge, Prefault, Purge};
use hksim_policy::{ConstGeometry, Geometry, Policy, ProcessConfig};
use hksim_testkit::spread::SmallDesign;
use hksim_testkit::{CheckSchedule, Failing, FaultPlan, Limits, NO_FAULTS, PlayerCounts, Random, test_scale};

fn play(design: &SmallDesign, geometry: impl Geometry, faults: FaultPlan, limits: Limits, seed: u64) -> PlayerCounts {
    hksim_testkit::play(design, geometry, faults, limits, seed).unwrap_or_else(|error| panic!("{error}"))
}

fn random_limits(random: &mut Random, operations: u64, validate_every: u64) -> Limits {
    let (objects, threads) = (random.pick(&[8, 60, 400]), random.pick(&[1, 2, 5]));
    Limits { operations, objects, threads, validate_every, schedule: CheckSchedule::Always }
}

/// Adds up the events, to check that every kind was tested.
fn add(total: &mut PlayerCounts, counts: PlayerCounts) {
    total.operations += counts.operations;
    total.allocated += counts.allocated;
    total.refused += counts.refused;
    total.resized_in_place += counts.resized_in_place;
    total.resized_moved += counts.resized_moved;
    total.freed_foreign += counts.freed_foreign;
    total.threads_ended += counts.threads_ended;
}

fn play_many(seed: u64, programs: u64, faults: impl Fn(&mut Random) -> FaultPlan) -> PlayerCounts {
    let mut total = PlayerCounts::default();
    for program in 0..programs * test_scale() {
        let seed = seed + program;
        let mut random = Random::new(seed);
        let design = SmallDesign::random(&mut random);
        let faults = faults(&mut random);
        let (operations, validate_every) = random.pick(&[(200, 1), (1000, 16)]);
        let limits = random_limits(&mut random, operations, validate_every);
        add(&mut total, play(&design, design.geometry(), faults, limits, seed));
    }
    eprintln!("{total:?}");
    total
}

#[test]
fn the_guarantees_hold_in_random_programs() {
    let total = play_many(0x1000, 100, |_| NO_FAULTS);
    let each = [
        total.allocated,
        total.refused,
        total.resized_in_place,
        total.resized_moved,
        total.freed_foreign,
        total.threads_ended,
    ];
    assert!(each.iter().all(|&count| count > 100), "some event occurred too rarely: {total:?}");
}

#[test]
fn the_guarantees_hold_while_system_calls_fail() {
    play_many(0x2_0000, 50, |random| FaultPlan {
        failing: random.pick(&[Failing::PerMille(20), Failing::PerMille(300), Failing::PerMille(1000)]),
        hugetlb_pages: random.pick(&[0, 1, 5, u64::MAX]),
    });
}

#[test]
fn the_guarantees_hold_whichever_single_system_call_fails() {
    play_many(0x3_0000, 50, |random| FaultPlan {
        failing: Failing::Call(random.log_uniform(200)),
        hugetlb_pages: u64::MAX,
    });
}

/// Checks the page size of SuperSlabs that started with small pages, through purges, new mappings and reuse for huge
/// blocks.
#[test]
fn advice_agrees_with_the_arena_table() {
    let mut seen = 0;
    for seed in 0x6_0000..0x6_0000 + 20 * test_scale() {
        let mut random = Random::new(seed);
        let mut design = SmallDesign::random(&mut random);
        let policy = Policy {
            superslab_bytes: 1 << 18,
            slab_bytes: 1 << 14,
            huge: Huge::Thp,
            huge_page_bytes: 1 << 18,
            huge_heaps: random.below(3) as u32,
            huge_fill_percent: 25 * random.below(5) as u32,
            prefault: Prefault::Off,
            ..design.policy
        };
        design = SmallDesign { policy, ordinals: 40, ..design };
        let limits = Limits { threads: 5, ..random_limits(&mut random, 1000, 1) };
        seen += play(&design, design.geometry(), NO_FAULTS, limits, seed).small_superslabs_seen;
    }
    eprintln!("{seen} checks of SuperSlabs with small pages");
    assert!(seen > 10_000, "too few checks for a conclusion");
}

/// After purges, the kernel refuses to map one range after another, until the whole arena is lost. A lost arena is not
/// a leak.
#[test]
fn programs_finish_in_arenas_that_are_lost_completely() {
    let any = SmallDesign::random(&mut Random::new(1)).policy;
    let policy = Policy {
        superslab_bytes: 1 << 20,
        classes: any.classes,
        header: any.header,
        header_bytes: any.header_bytes,
        carve: any.carve,
        meta: any.meta,
        huge: Huge::Never,
        cache_superslabs: 0,
        purge: Purge::Unmap,
        purge_delay_ns: 0,
        purge_spans: true,
        ..Policy::default()
    };
    let faults = FaultPlan { failing: Failing::PerMille(100), ..NO_FAULTS };
    let mut lost_whole = 0;
    for seed in 0x5_0000..0x5_0000 + 20 * test_scale() {
        let design = SmallDesign { policy, process: ProcessConfig::default(), ordinals: 3 };
        let limits = random_limits(&mut Random::new(seed), 3000, 64);
        let counts = play(&design, design.geometry(), faults, limits, seed);
        lost_whole += u64::from(counts.superslabs_lost == u64::from(design.ordinals));
    }
    assert!(lost_whole > 3, "{lost_whole} arenas were lost completely: too few for a conclusion");
}

#[test]
fn constant_and_run_time_geometry_give_the_same_placement() {
    for seed in 0x4_0000..0x4_0000 + 4 * test_scale() {
        let mut random = Random::new(seed);
        let mut design = SmallDesign::random(&mut random);
        (design.ordinals, design.process) = (24, ProcessConfig::default());
        design.policy = Policy {
            purge: random.pick(&[Purge::DontNeed, Purge::None]),
            huge: random.pick(&[Huge::Thp, Huge::Never]),
            purge_delay_ns: 100_000,
            ..Policy::default()
        };
        let limits = random_limits(&mut random, 3000, 64);
        let constant = play(&design, ConstGeometry::<21, 16>, NO_FAULTS, limits, seed);
        let run_time = play(&design, design.geometry(), NO_FAULTS, limits, seed);
        assert_eq!(constant, run_time, "seed {seed:#x}");
        assert!(constant.allocated > 500, "seed {seed:#x}: {constant:?}");
    }
}

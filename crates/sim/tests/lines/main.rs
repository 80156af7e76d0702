//! Line counts against a naive LRU stack, on random accesses.

mod stack;

use std::collections::BTreeSet;

use hksim_engine::TouchRule;
use hksim_policy::Policy;
use hksim_policy::vocabulary::{Header, Huge, Prefault, Purge};
use hksim_sim::lines::{Accessor, LINE_BYTES, LineCounts, LineModel};
use hksim_sim::simulate::Marks;
use hksim_sim::tlb::PageSize;
use hksim_sim::{Counted, SimConfig, simulate};
use hksim_testkit::{Random, test_scale};
use hksim_trace::generate::{RandomMixed, Workload};
use stack::Stack;

/// Sizes of caches that are modelled exactly if every line is sampled.
const EXACT: usize = 6;

/// Passes random accesses to a model and to the stack. `touch` draws the first byte and the length of an access.
fn both(
    mut model: LineModel,
    seed: u64,
    accesses: u64,
    touch: impl Fn(&mut Random) -> (u64, u64),
) -> (LineCounts, Stack) {
    let (mut random, mut stack) = (Random::new(seed), Stack::default());
    for _ in 0..accesses {
        let (at, bytes) = touch(&mut random);
        let accessor = random.pick(&Accessor::ALL);
        let size = |page: u64| if page.is_multiple_of(3) { PageSize::Huge } else { PageSize::Base };
        model.access(at..at + bytes, accessor, size);
        let lines = at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES);
        stack.access(lines, accessor, |line| size(line * LINE_BYTES / 4096));
    }
    (model.counts(), stack)
}

/// Where accesses go: to few lines, to many, to long ranges, to more pages than the windows hold.
fn touch_of(kind: u64) -> impl Fn(&mut Random) -> (u64, u64) {
    move |random| match kind {
        0 => (random.below(900 * LINE_BYTES), 1),
        1 => (random.below(1 << 20), 1 + random.below(300)),
        2 => (random.below(1 << 19), 1 + random.below(100_000)),
        3 => (random.below(1 << 14) * 4096, 1 + random.below(5000)),
        // A few hot lines and many cold ones: the log fills with stale entries.
        _ => (if random.below(50) == 0 { random.below(1 << 22) } else { random.below(20 * LINE_BYTES) }, 1),
    }
}

#[test]
fn small_caches_are_exact() {
    for seed in 0x11E5..0x11E5 + 3 * test_scale() {
        for kind in 0..5 {
            let accesses = [30_000, 15_000, 100, 500, 60_000][kind as usize];
            let (counts, stack) = both(LineModel::new(0), seed, accesses, touch_of(kind));
            let what = format!("seed {seed:#x}, kind {kind}");
            for accessor in Accessor::ALL {
                let (found, expected) = (counts.of(accessor).expect("all accessors"), stack.of(accessor));
                assert_eq!(found.accesses, expected.accesses, "{what}, {accessor:?}");
                for size in 0..EXACT {
                    let misses = expected.misses(counts.cache_lines[size]);
                    assert_eq!(found.misses[size], misses, "{what}, {accessor:?}, cache {size}");
                }
            }
        }
    }
}

/// All misses of a cache.
fn misses(counts: &LineCounts, size: usize) -> u64 {
    counts.accessors.iter().map(|lines| lines.misses[size].by_pattern().total()).sum()
}

/// The error of a size is that of its sample of some 500 lines: 4.4 % of the size, and as much of the hits if accesses are
/// uniform.
#[test]
fn caches_are_right_within_the_error_of_their_samples() {
    for seed in 0x5A4D..0x5A4D + 2 * test_scale() {
        for footprint in [1 << 19, 1 << 20, 1 << 22] {
            let touch = |random: &mut Random| (random.below(footprint), 1 + random.below(120));
            let (counts, stack) = both(LineModel::default(), seed, 40_000, touch);
            for (size, &lines) in counts.cache_lines.iter().enumerate() {
                let (found, expected) = (misses(&counts, size) as f64, stack.misses(lines) as f64);
                let error = (found - expected).abs() / stack.accesses() as f64;
                assert!(error < 0.05, "seed {seed:#x}, {footprint} bytes, {lines} lines: {found}, not {expected}");
            }
        }
    }
}

#[test]
fn the_footprint_is_exact_while_its_sample_is_small_and_near_after_that() {
    let exact = [(0, 5, 0.0), (0, 5_000, 0.0)];
    for (finest, lines, tolerance) in
        exact.into_iter().chain([(2, 1_000, 0.06), (2, 100_000, 0.06), (2, 3_000_000, 0.06)])
    {
        let mut model = LineModel::new(finest);
        for start in (0..lines).step_by(50) {
            let end = (start + 50).min(lines);
            model.access(start * LINE_BYTES..end * LINE_BYTES, Accessor::Program, |_| PageSize::Base);
        }
        model.access(0..lines * LINE_BYTES, Accessor::Filling, |_| PageSize::Base);
        for line in 0..lines.min(9_000) {
            model.access(line * LINE_BYTES..line * LINE_BYTES + 1, Accessor::Bookkeeping, |_| PageSize::Base);
        }
        model.access(1 << 40..(1 << 40) + 9 * LINE_BYTES, Accessor::Kernel, |_| PageSize::Base);
        let error = (model.counts().footprint_lines as f64 / lines as f64 - 1.0).abs();
        assert!(error <= tolerance, "{lines} lines: off by {error}");
    }
}

/// A range that is longer than every cache, twice, and its last lines once more.
#[test]
fn a_long_range_leaves_its_last_lines() {
    let mut model = LineModel::default();
    let bytes = 1 << 26;
    for range in [0..bytes, 0..bytes, bytes - 512 * LINE_BYTES..bytes] {
        model.access(range, Accessor::Program, |_| PageSize::Base);
    }
    let counts = model.counts();
    let program = counts.of(Accessor::Program).expect("all accessors");
    let lines = bytes / LINE_BYTES;
    assert_eq!(program.accesses.total(), 2 * lines + 512);
    assert_eq!(
        (program.misses[0].by_pattern().total(), program.misses[1].by_pattern().total()),
        (2 * lines, 2 * lines)
    );
    let largest = program.misses.last().expect("sizes").by_pattern().total() as f64;
    assert!((largest / lines as f64 - 1.0).abs() < 0.2, "{largest} of {lines} lines are missed by the largest cache");
}

/// The figures of a simulation do not depend on whether lines are counted, and what is counted agrees with them.
#[test]
fn a_simulation_with_lines_has_the_figures_of_one_without() {
    let policies = [
        Policy::default(),
        Policy { front_cache: 8, header: Header::Full, huge: Huge::Never, ..Policy::default() },
        Policy { purge: Purge::Free, purge_delay_ns: 0, prefault: Prefault::Touch, ..Policy::default() },
    ];
    for policy in policies {
        let workload = Workload::RandomMixed(RandomMixed { cycles: 4_000, ws: 300, ..RandomMixed::default() });
        let mut source = workload.source().expect("the parameters are in range");
        let config = SimConfig { policy, touch: TouchRule::All, ..SimConfig::default() };
        let without = simulate(source.as_mut(), &config, Marks::Collect, &|_| ()).expect("a simulation");
        source.rewind().expect("a generator");
        let config = SimConfig { counted: Counted::Time, ..config };
        let with = simulate(source.as_mut(), &config, Marks::Collect, &|_| ()).expect("a simulation");
        let counts = with.report.lines.as_ref().expect("lines were counted");
        assert_eq!(with.figures(), without.figures());
        let lines = |accessor| counts.of(accessor).expect("all accessors").accesses.total();
        let installs = with.report.installs.by_kind;
        let zeroed = installs.base_4k + 512 * installs.thp;
        assert_eq!(lines(Accessor::Kernel), zeroed * 4096 / LINE_BYTES, "every page that is not the zero page");
        assert!(lines(Accessor::Program) > 4_000 && lines(Accessor::Bookkeeping) > 4_000);
        assert!(counts.footprint_lines * LINE_BYTES <= with.report.rss_bytes_peak * 11 / 10);
    }
}

/// Distinct lines from each fault to the next, by a set.
#[test]
fn faults_are_as_far_apart_as_the_lines_between_them() {
    for seed in 0xFA17..0xFA17 + 3 * test_scale() {
        for (finest, tolerance) in [(0, 0.0), (3, 0.05)] {
            let (mut random, mut model, mut between) = (Random::new(seed), LineModel::new(finest), BTreeSet::new());
            let mut distances = Vec::new();
            for fault in 0..600 {
                for _ in 0..random.below(2 + fault % 60) {
                    let (at, bytes) = (random.below(1 << 19), 1 + random.below(6_000));
                    model.access(at..at + bytes, random.pick(&Accessor::ALL), |_| PageSize::Base);
                    between.extend(at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES));
                }
                let is_later = random.below(4) > 0;
                model.fault(is_later);
                // No cache has anything before the first fault.
                let distance = if fault == 0 { u64::MAX } else { between.len() as u64 };
                distances.extend(is_later.then_some(distance));
                between.clear();
            }
            let counts = model.counts();
            assert_eq!(counts.faults.faults, distances.len() as u64);
            for (size, &lines) in
                counts.cache_lines.iter().enumerate().take(if finest == 0 { EXACT } else { usize::MAX })
            {
                let expected = distances.iter().filter(|&&distance| distance >= lines).count() as f64;
                let error = (counts.faults.misses[size] as f64 - expected).abs() / distances.len() as f64;
                assert!(error <= tolerance, "seed {seed:#x}, one line in 2^{finest}, {lines} lines: off by {error}");
            }
            let found = counts.between_faults();
            assert_eq!(found.iter().map(|(_, faults)| faults).sum::<u64>(), counts.faults.faults);
            assert!(found.is_sorted_by(|one, next| one.0 < next.0), "{found:?}");
        }
    }
}

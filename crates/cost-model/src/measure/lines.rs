//! Times accesses to cache lines that are present in memory, for amounts of memory from the first-level cache to beyond
//! the last.

use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hksim_linux_probe::area::{Area, Granule, faults, timed};
use hksim_linux_probe::chase::{Chase, LINE_BYTES, scatter};
use hksim_linux_probe::core_sharing::{CHAIN, CoreWatch, chain};

use super::MeasureError;
use super::pages::NO_HUGE_PAGES;
use crate::memory_costs::{CostAt, CostCurve, MemoryCosts};
use crate::profile::Cost;

/// Amounts of memory, powers of two: the first fits into any first-level cache, the last into no cache that a program has alone.
const SIZES: [u64; 13] = [
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    32 << 20,
    128 << 20,
];
/// One more that is filled: what first-level caches of today hold, whose end a program's blocks meet more often than any other.
const FIRST_CACHE: u64 = 48 << 10;
/// Rounds, each of all amounts.
const ROUNDS: usize = 7;
/// Accesses per round and amount.
const ACCESSES: u64 = 20_000;
/// Bytes of one `memset`: that of a typical block.
const FILL_BYTES: u64 = 1 << 10;
/// Memory that fits into the caches is accessed before it is timed; more would not stay there.
const WARM_BYTES_MAX: u64 = 32 << 20;
/// How often it is: after accesses to more memory than it holds, a last-level cache takes some passes to hold this memory.
const WARM_PASSES: u64 = 5;
/// For how long it is filled before that is timed. After memory that no cache holds, Zen 3 fills its first caches at half the speed for
/// about a millisecond: 1.2 and 1.9 ns a line instead of 0.7 and 0.95.
const WARM_FILL: Duration = Duration::from_millis(4);
/// Times that an access is timed in a round, until nothing else runs on the core before and after.
const TRIALS: u32 = 4;
/// For how long each of them waits for that.
const WAIT_MAX: Duration = Duration::from_millis(3);
/// Other work on the core does not pause for longer, where there is much of it.
const ALONE_MAX: Duration = Duration::from_millis(1);
/// Chains per round.
const CHAINS: u64 = 6_000;

/// Times in nanoseconds, by amount and round.
struct Rounds(Vec<(u64, Vec<f64>)>);

impl Rounds {
    fn of(areas: &[Area]) -> Rounds {
        Rounds(areas.iter().map(|area| (area.bytes(), Vec::new())).collect())
    }

    /// The rounds of each amount.
    fn each(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        self.0.iter_mut().map(|(_, rounds)| rounds)
    }

    fn curve(self) -> CostCurve {
        let cost = |(bytes, rounds)| Some(CostAt { bytes, cost: Cost::of(rounds, 1.0)? });
        CostCurve(self.0.into_iter().filter_map(cost).collect())
    }
}

/// Times accesses to memory.
///
/// # Errors
/// Mapping memory fails.
pub(super) fn costs(core: &mut CoreWatch) -> Result<MemoryCosts, MeasureError> {
    let (scatter, chase) = scattered(Granule::Page, core)?.unwrap_or_default();
    let huge = scattered(Granule::Huge, core)?;
    let huge_pages_skipped = huge.is_none().then(|| NO_HUGE_PAGES.to_string());
    let (scatter_huge, chase_huge) = huge.unwrap_or_default();
    let cycle =
        Cost::of((0..ROUNDS).map(|_| cycle_ns()).collect(), 1.0).ok_or_else(|| io::Error::other("no rounds"))?;
    let (fill, pieces) = filled(core)?;
    Ok(MemoryCosts { huge_pages_skipped, cycle, fill, pieces, scatter, scatter_huge, chase, chase_huge })
}

/// The least of the times that `ns` measures until one was measured while the core was this thread's alone. Other work on the core
/// only makes a time longer.
fn alone(core: &mut CoreWatch, mut ns: impl FnMut() -> f64) -> f64 {
    let mut least = f64::INFINITY;
    core.look();
    for _ in 0..TRIALS {
        let before = core.wait(WAIT_MAX);
        let (found, took) = timed(&mut ns);
        least = least.min(found);
        let after = core.look_again();
        if core.is_alone(before) && core.is_alone(after) || took > ALONE_MAX {
            break;
        }
    }
    least
}

/// The time of one access, of `count` that `run` makes.
fn ns_each(count: u64, run: impl FnOnce()) -> f64 {
    timed(run).1.as_nanos() as f64 / count as f64
}

/// The time of a cycle: additions that depend on each other take one each.
fn cycle_ns() -> f64 {
    let mut sum = black_box(1u64);
    ns_each(CHAIN * CHAINS, || {
        for _ in 0..CHAINS {
            sum = chain(sum);
        }
        black_box(sum);
    })
}

/// Times `memset` piece by piece: in the order of the addresses, and in scattered order.
fn filled(core: &mut CoreWatch) -> Result<(CostCurve, CostCurve), MeasureError> {
    let mut sizes = [&SIZES[..], &[FIRST_CACHE]].concat();
    sizes.sort_unstable();
    let areas = areas(Granule::Page, &sizes)?;
    areas.iter().for_each(|area| area.fill());
    let (mut in_order, mut scattered) = (Rounds::of(&areas), Rounds::of(&areas));
    let mut random = Rng::with_seed(0);
    for _ in 0..ROUNDS {
        for (area, (in_order, scattered)) in areas.iter().zip(in_order.each().zip(scattered.each())) {
            let mut pieces: Vec<u64> = (0..area.bytes()).step_by(FILL_BYTES as usize).collect();
            in_order.push(filled_ns(area, &pieces, core));
            random.shuffle(&mut pieces);
            scattered.push(filled_ns(area, &pieces, core));
        }
    }
    Ok((in_order.curve(), scattered.curve()))
}

/// The time of a line, if the pieces that begin at these places are filled one after another.
fn filled_ns(area: &Area, pieces: &[u64], core: &mut CoreWatch) -> f64 {
    let passes = (ACCESSES * LINE_BYTES).div_ceil(area.bytes());
    let is_warm = area.bytes() <= WARM_BYTES_MAX;
    let fill = || pieces.iter().for_each(|&at| area.fill_part(at, FILL_BYTES));
    if is_warm {
        let begun = Instant::now();
        (0..WARM_PASSES).for_each(|_| fill());
        while begun.elapsed() < WARM_FILL {
            fill();
        }
    }
    alone(core, || {
        if is_warm {
            fill();
        }
        ns_each(passes * area.bytes() / LINE_BYTES, || (0..passes).for_each(|_| fill()))
    })
}

fn areas(granule: Granule, sizes: &[u64]) -> io::Result<Vec<Area>> {
    sizes.iter().map(|&bytes| Area::of(granule, bytes)).collect()
}

/// Times scattered writes and dependent loads, in pages of this size. `None` if the kernel gives no such pages.
fn scattered(granule: Granule, core: &mut CoreWatch) -> Result<Option<(CostCurve, CostCurve)>, MeasureError> {
    let areas = areas(granule, &SIZES)?;
    let before = faults();
    areas.iter().for_each(|area| area.write(granule.bytes()));
    let expected: u64 = areas.iter().map(|area| area.bytes().div_ceil(granule.bytes())).sum();
    if granule == Granule::Huge && faults() - before != expected {
        return Ok(None);
    }
    let (mut scatters, mut chases) = (Rounds::of(&areas), Rounds::of(&areas));
    let mut chasing = Vec::new();
    for (area, rounds) in areas.into_iter().zip(scatters.each()) {
        let (lines, mut next) = (area.bytes() / LINE_BYTES, 0);
        for _ in 0..ROUNDS {
            let count = ACCESSES.max(lines.min(4 * ACCESSES));
            let is_warm = area.bytes() <= WARM_BYTES_MAX;
            if is_warm {
                next = scatter(&area, next, (WARM_PASSES - 1) * lines);
            }
            rounds.push(alone(core, || {
                if is_warm {
                    next = scatter(&area, next, lines);
                }
                ns_each(count, || next = scatter(&area, next, count))
            }));
        }
        // The same order in each run.
        let mut random = Rng::with_seed(0);
        chasing.push(Chase::new(area, |below| random.u64(..below)));
    }
    for _ in 0..ROUNDS {
        for (chase, rounds) in chasing.iter_mut().zip(chases.each()) {
            rounds.push(alone(core, || {
                if chase.lines() * LINE_BYTES <= WARM_BYTES_MAX {
                    chase.follow(chase.lines());
                }
                ns_each(ACCESSES, || chase.follow(ACCESSES))
            }));
        }
    }
    Ok(Some((scatters.curve(), chases.curve())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what holds on a machine under any load: a chain through memory takes at least ten times as long as one in the
    /// first cache, so twice as long is far from both.
    #[test]
    fn every_amount_has_a_cost_and_memory_is_slower_than_the_first_cache() {
        let costs = costs(&mut CoreWatch::default()).expect("memory");
        let is_range =
            |cost: &Cost| 0.0 < cost.low_ns && cost.low_ns <= cost.median_ns && cost.median_ns <= cost.high_ns;
        assert!(is_range(&costs.cycle), "{:?}", costs.cycle);
        let chased = &costs.chase.0[0].cost;
        let cycles = chased.low_ns / costs.cycle.low_ns;
        assert!(
            3.0 < cycles,
            "a load from the first cache takes 4 or 5 cycles, not {cycles:.1}: {chased:?}, {:?}",
            costs.cycle
        );
        for (name, curve) in costs.curves() {
            if curve.0.is_empty() {
                println!("skipped: {name}: {NO_HUGE_PAGES}");
                continue;
            }
            let ns: Vec<f64> = curve.0.iter().map(|point| point.cost.low_ns).collect();
            println!("{name}: {ns:.2?}");
            let sizes: Vec<u64> =
                curve.0.iter().map(|point| point.bytes).filter(|bytes| bytes.is_power_of_two()).collect();
            assert_eq!(
                (sizes, curve.0.len() > SIZES.len()),
                (SIZES.to_vec(), ["fill", "pieces"].contains(&name)),
                "{curve:?}"
            );
            assert!(curve.0.iter().all(|point| is_range(&point.cost)), "{name}: {curve:?}");
        }
        for chase in [&costs.chase, &costs.chase_huge] {
            if let ([first, ..], [.., last]) = (&chase.0[..], &chase.0[..]) {
                assert!(last.cost.low_ns > 2.0 * first.cost.low_ns, "{chase:?}");
            }
        }
    }
}

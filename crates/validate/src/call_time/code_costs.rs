//! What an instruction of the preloadable allocator takes on this machine, and a call besides.
//!
//! How many of its instructions a processor executes in a cycle depends on the processor: 5 on one, 2.5 on another. So
//! designs that take different numbers of instructions for the same calls, on memory that the first caches hold, are
//! replayed in rounds, and timed in short pieces, of which those count that had the processor's core alone. A line is fitted to their times: its slope is the time of an instruction, and its height above 0
//! that of a call.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hksim_cost_model::{CodeCosts, Cost};
use hksim_engine::TouchRule;
use hksim_explore::described::Described;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::runs::setup;
use hksim_linux_probe::core_sharing::CoreWatch;
use hksim_policy::Policy;
use hksim_policy::vocabulary::{Header, Purge};
use hksim_replay::compare::{Allocator, Found, WARM_UP_RUNS};
use hksim_replay::{Measure, Mode, Piece, PieceReplay, ReplaySpec, Target};
use hksim_sim::{Counted, SimConfig};
use hksim_time_model::{PathCosts, Time, instructions};
use hksim_timing::{Arrangement, Effort, Plan, Timed, time};
use hksim_trace::generate::{RandomMixed, Workload};

use super::Profile;
use crate::error::ValidateError;

/// Calls: so many that faults are a small part of their time.
const CYCLES: u64 = 1_000_000;
/// Blocks that live at the same time, at most, and their largest size: 16 KiB, in the first cache.
const SLOTS: u32 = 64;
const BYTES_MAX: u32 = 256;
/// The seed of the order of replays.
const SEED: u64 = 1;
/// Pieces of a design that had the core alone, at least.
const ALONE_MIN: usize = 5;
/// With so many pieces of each design, no more rounds are made, but for those asked for.
const ALONE_ENOUGH: usize = 50;
/// Times that the rounds are made until there are.
const TRIALS: u32 = 3;

/// The designs that are replayed. Their instructions per call differ by a factor of three, and their accesses to memory hardly.
pub fn designs() -> Vec<Policy> {
    let default = Policy { purge: Purge::None, ..Policy::DEFAULT };
    vec![
        default,
        Policy { superslab_bytes: 1 << 20, ..default },
        Policy { header: Header::Full, header_bytes: 16, ..default },
        Policy { front_cache: 8, ..default },
        Policy { front_cache: 32, ..default },
        Policy { slab_bytes: 16 << 10, ..default },
    ]
}

/// What a design takes for each call.
struct Counts {
    instructions: f64,
    /// Predicted nanoseconds of memory.
    memory_ns: f64,
}

/// Measures the costs of code by replays on these allocators, those of [`designs`], in so many rounds. The profile gives the
/// costs of memory.
///
/// # Errors
/// A design cannot be simulated, or a replay cannot start.
pub fn code_costs(allocators: &[Allocator], profile: &Profile, rounds: u32) -> Result<CodeCosts, ValidateError> {
    let load = RandomMixed { cycles: CYCLES, ws: SLOTS, max: BYTES_MAX, ..RandomMixed::default() };
    let trace = Trace::workload(Workload::RandomMixed(load))?;
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let path = folder.path().join("calls.hkt");
    trace.write(&path)?;
    let (mut counts, mut replays, core) = (Vec::new(), Vec::new(), Arc::default());
    for Allocator { own, found, .. } in allocators {
        let (Some(own), Found::Here(target)) = (own, found) else { continue };
        counts.push(counted(&own.policy, &trace, profile)?);
        replays.push(PieceReplay::of(&spec(&path, target.clone()), &core)?);
    }
    replays.push(PieceReplay::harness(&spec(&path, Target::C_LIBRARY), &core)?);
    let effort = Effort { precision: 0.0, time_max: Duration::MAX, rounds_min: rounds, rounds_max: rounds };
    let plan = Plan { effort, warm_up_rounds: WARM_UP_RUNS, arrangement: Arrangement::InTurn, seed: SEED };
    let mut pieces = Vec::new();
    for _ in 0..TRIALS {
        for Timed { failure, .. } in time(&replays.iter().collect::<Vec<_>>(), &plan, &mut |_| {}).subjects {
            failure.map_or(Ok(()), Err)?;
        }
        pieces = replays.iter().map(PieceReplay::pieces).collect();
        if pieces.iter().all(|runs| alone_ns(runs, &watched(&pieces), ALONE_ENOUGH).is_some()) {
            break;
        }
    }
    fitted(&counts, &pieces)
}

/// All looks of all replays.
fn watched(replays: &[Vec<Vec<Piece>>]) -> CoreWatch {
    let mut core = CoreWatch::default();
    replays.iter().flatten().flatten().for_each(|piece| core.note(piece.additions_per_cycle));
    core
}

fn spec(trace: &Path, target: Target) -> ReplaySpec {
    ReplaySpec { mode: Mode::Ordered, measure: Measure::PAGES, ..ReplaySpec::ordered(trace, target, TouchRule::None) }
}

fn counted(policy: &Policy, trace: &Trace, profile: &Profile) -> Result<Counts, ValidateError> {
    let setup = setup(&RunConfig::of(*policy), trace, BaseKernel::Host)?;
    let setup = SimConfig { counted: Counted::Time, touch: TouchRule::None, ..setup };
    let reports = Policy::sweep(&trace.input, &[setup], &(), &|_, _| {})?;
    let report = reports.first().ok_or(ValidateError::NoPrediction)?;
    let paths = report.paths.as_ref().ok_or(ValidateError::NoPrediction)?;
    let Time { parts_ns_per_call: parts, .. } = Policy::time(report, profile).map_err(ValidateError::NoCosts)?;
    let instructions = instructions(paths, PathCosts::of(policy)).total / report.calls as f64;
    Ok(Counts { instructions, memory_ns: parts.memory })
}

/// Fits a line to the undisturbed times of each design. The lines of single rounds give the range. `replays` are the pieces of each
/// run; the last ones are those of the replay without an allocator. Every event of the load is a call.
fn fitted(counts: &[Counts], replays: &[Vec<Vec<Piece>>]) -> Result<CodeCosts, ValidateError> {
    let core = watched(replays);
    let (own, designs) = replays.split_last().ok_or(ValidateError::NoPrediction)?;
    // The line through the times that `ns_of` takes from the runs of each subject.
    let line_by = |ns_of: &dyn Fn(&[Vec<Piece>]) -> Option<f64>| {
        let own_ns = ns_of(own)?;
        let point = |(counts, runs): (&Counts, &Vec<Vec<Piece>>)| {
            Some((counts.instructions, ns_of(runs)? - own_ns - counts.memory_ns))
        };
        let points: Option<Vec<_>> = counts.iter().zip(designs).map(point).collect();
        points.map(|points| line(&points))
    };
    let of_round = |round: usize| line_by(&|runs| alone_ns(runs.get(round..=round)?, &core, ALONE_MIN));
    let (slopes, heights): (Vec<f64>, Vec<f64>) =
        (0..own.len()).filter_map(of_round).map(|(slope, height)| (slope.max(0.0), height.max(0.0))).unzip();
    let of_all = |runs: &[Vec<Piece>]| alone_ns(runs, &core, ALONE_MIN).or_else(|| fast_ns(runs));
    let (slope, height) = line_by(&of_all).ok_or(ValidateError::NoPrediction)?;
    let cost = |rounds: Vec<f64>, of_all: f64| {
        let median_ns = of_all.max(0.0);
        let range = Cost::of(if rounds.is_empty() { vec![median_ns] } else { rounds }, 1.0)?;
        Some(Cost { median_ns, low_ns: range.low_ns.min(median_ns), high_ns: range.high_ns.max(median_ns), ..range })
    };
    let costs = cost(slopes, slope).zip(cost(heights, height));
    costs.map(|(instruction, call)| CodeCosts { instruction, call }).ok_or(ValidateError::NoPrediction)
}

/// The pieces of runs but for the first of each run, in which memory is touched for the first time.
fn later_pieces(runs: &[Vec<Piece>]) -> impl Iterator<Item = &Piece> {
    let events = runs.iter().flatten().map(|piece| piece.events).max().unwrap_or(0);
    runs.iter().flat_map(|pieces| pieces.iter().skip(1)).filter(move |piece| piece.events == events)
}

/// Nanoseconds of an event in sorted order.
fn sorted_ns<'a>(pieces: impl Iterator<Item = &'a Piece>) -> Vec<f64> {
    let mut times: Vec<f64> = pieces.map(|piece| piece.cpu_ns as f64 / piece.events.max(1) as f64).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The lower quartile of the times of an event in the pieces that had the core alone; `None` if fewer than `least` had. After other
/// work, the first ones find less of their data in the caches.
fn alone_ns(runs: &[Vec<Piece>], core: &CoreWatch, least: usize) -> Option<f64> {
    let times = sorted_ns(later_pieces(runs).filter(|piece| core.is_alone(piece.additions_per_cycle)));
    (times.len() >= least).then(|| quartile(&times)).flatten()
}

/// The lower quartile of all pieces: what disturbs a piece only makes it longer.
fn fast_ns(runs: &[Vec<Piece>]) -> Option<f64> {
    quartile(&sorted_ns(later_pieces(runs)))
}

/// The lower quartile of sorted times.
fn quartile(times: &[f64]) -> Option<f64> {
    times.get(times.len() / 4).copied()
}

/// The slope of the line with the least squares of its errors, and its height at 0.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let number = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / number;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let square: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    let product: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let slope = if square > 0.0 { product / square } else { 0.0 };
    (slope, y_mean - slope * x_mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_slope_and_the_height_of_its_points() {
        let (slope, height) = line(&[(10.0, 6.0), (20.0, 9.0), (40.0, 15.0)]);
        assert!((slope - 0.3).abs() < 1e-12 && (height - 3.0).abs() < 1e-12, "{slope} {height}");
        // Errors that cancel out in the slope.
        let (slope, height) = line(&[(0.0, 1.0), (1.0, 0.0), (2.0, 0.0), (3.0, 1.0)]);
        assert!(slope.abs() < 1e-12 && (height - 0.5).abs() < 1e-12, "{slope} {height}");
        assert_eq!(line(&[(5.0, 2.0)]), (0.0, 2.0));
    }

    #[test]
    fn pieces_beside_other_work_do_not_count() {
        let piece = |cpu_ns, additions_per_cycle| Piece { events: 100, cpu_ns, additions_per_cycle };
        // Instructions take 0.1 ns, and a call 2 ns besides. Beside other work everything takes twice as long, but for the last
        // design, which is never alone in the first run.
        let run = |instructions: f64, is_alone: bool| -> Vec<Piece> {
            let ns = (100.0 * (1.0 + 2.0 + 0.1 * instructions)) as u64;
            let slow = (0..90).map(|_| piece(2 * ns, 2.0));
            let fast = (0..if is_alone { 30 } else { 0 }).map(|_| piece(ns, 3.8));
            std::iter::once(piece(99_999, 3.8)).chain(slow).chain(fast).collect()
        };
        let own = |_| std::iter::once(piece(99_999, 3.8)).chain((0..30).map(|_| piece(100, 3.8))).collect::<Vec<_>>();
        let numbers = [10.0, 40.0];
        let counts = numbers.map(|instructions| Counts { instructions, memory_ns: 0.0 });
        let mut replays = vec![vec![run(10.0, true), run(10.0, true)], vec![run(40.0, false), run(40.0, true)]];
        replays.push((0..2).map(own).collect());
        let CodeCosts { instruction, call } = fitted(&counts, &replays).expect("costs");
        assert!((instruction.median_ns - 0.1).abs() < 1e-9 && (call.median_ns - 2.0).abs() < 1e-9, "{instruction:?}");
        assert_eq!((instruction.rounds, call.rounds), (1, 1), "only the second round has a line");
        // Without an undisturbed piece, the fast ones count.
        let replays: Vec<Vec<Vec<Piece>>> = replays
            .into_iter()
            .map(|runs| {
                let slow = |pieces: Vec<Piece>| {
                    pieces.into_iter().filter(|piece| piece.additions_per_cycle < 3.0 || piece.cpu_ns == 100)
                };
                runs.into_iter().map(|pieces| slow(pieces).collect()).collect()
            })
            .collect();
        let CodeCosts { instruction, .. } = fitted(&counts, &replays).expect("costs");
        assert!((instruction.median_ns - 0.2).abs() < 1e-9, "{instruction:?}");
    }

    #[test]
    fn the_designs_take_different_numbers_of_instructions() {
        let trace = Trace::workload(Workload::RandomMixed(RandomMixed { cycles: 20_000, ..RandomMixed::default() }))
            .expect("a trace");
        let numbers: Vec<f64> = designs()
            .iter()
            .map(|policy| {
                let setup = setup(&RunConfig::of(*policy), &trace, BaseKernel::AsItComes).expect("a setup");
                let setup = SimConfig { counted: Counted::Paths, ..setup };
                let reports = Policy::sweep(&trace.input, &[setup], &(), &|_, _| {}).expect("a report");
                let paths = reports[0].paths.as_ref().expect("paths");
                instructions(paths, PathCosts::of(policy)).total / reports[0].calls as f64
            })
            .collect();
        let [least, most] = [f64::min, f64::max].map(|of| numbers.iter().copied().reduce(of).expect("numbers"));
        assert!(most > 2.5 * least, "{numbers:?}");
    }
}

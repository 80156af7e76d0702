//! What an instruction of the preloadable allocator takes on this machine, and a call besides.
//!
//! How many of its instructions a processor executes in a cycle depends on the processor: 5 on one, 2.5 on another. So
//! designs that take different numbers of instructions for the same calls, on memory that the first caches hold, are
//! replayed in rounds, and timed in short pieces, of which those count that had the processor's core alone, or the fastest ones if
//! hardly any had. A line is fitted to their times: its slope is the time of an instruction, and its height above 0 that of a call.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
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
/// Pieces of each design that had the core alone, at least, for a line through those of a round.
const ALONE_IN_ROUND: usize = 5;
/// The same for the line through those of all rounds. With so many, no more rounds are made, but for those asked for.
const ALONE_ENOUGH: usize = 50;
/// If a design has fewer, this share of all pieces is taken for undisturbed.
const FAST_SHARE: f64 = 0.01;
/// Times that the rounds are made until there are.
const TRIALS: u32 = 2;

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
/// costs of memory, and what is known of the core.
///
/// # Errors
/// A design cannot be simulated, or a replay cannot start.
pub fn code_costs(allocators: &[Allocator], profile: &Profile, rounds: u32) -> Result<CodeCosts, ValidateError> {
    let alone_from = profile.core.map_or(0.0, |core| core.alone_additions_per_cycle);
    let load = RandomMixed { cycles: CYCLES, ws: SLOTS, max: BYTES_MAX, ..RandomMixed::default() };
    let trace = Trace::workload(Workload::RandomMixed(load))?;
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let path = folder.path().join("calls.hkt");
    trace.write(&path)?;
    // Of all replays.
    let core = Mutex::new(CoreWatch::knowing(alone_from));
    let watch = || core.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut counts, mut replays) = (Vec::new(), Vec::new());
    for Allocator { own, found, .. } in allocators {
        let (Some(own), Found::Here(target)) = (own, found) else { continue };
        counts.push(counted(&own.policy, &trace, profile)?);
        replays.push(PieceReplay::of(&spec(&path, target.clone()), &core)?);
    }
    replays.push(PieceReplay::harness(&spec(&path, Target::C_LIBRARY), &core)?);
    let effort = Effort { precision: 0.0, time_max: Duration::MAX, rounds_min: rounds, rounds_max: rounds };
    let plan = Plan { effort, warm_up_rounds: WARM_UP_RUNS, arrangement: Arrangement::InTurn, seed: SEED };
    let mut pieces: Vec<Vec<Round>> = vec![Vec::new(); replays.len()];
    for _ in 0..TRIALS {
        for Timed { failure, .. } in time(&replays.iter().collect::<Vec<_>>(), &plan, &mut |_| {}).subjects {
            failure.map_or(Ok(()), Err)?;
        }
        for (of_subject, replay) in pieces.iter_mut().zip(&replays) {
            of_subject.extend(counted_rounds(&replay.take(), rounds));
        }
        if have_alone(&pieces, &watch()) {
            break;
        }
    }
    fitted(&counts, &pieces, &watch())
}

/// Pieces of the runs of a round.
type Round = Vec<Piece>;

/// The rounds of a subject after the warm-up; in a round there may be several runs of it. Without the first piece of a run, in which
/// memory is touched for the first time, and the last one, which is shorter.
fn counted_rounds(runs: &[Vec<Piece>], rounds: u32) -> impl Iterator<Item = Round> {
    let runs_of_round = runs.len() / (rounds + WARM_UP_RUNS) as usize;
    let middle = |run: &Vec<Piece>| run.get(1..run.len().saturating_sub(1)).unwrap_or_default().to_vec();
    runs.chunks(runs_of_round.max(1))
        .skip(WARM_UP_RUNS as usize)
        .map(move |of_round| of_round.iter().flat_map(middle).collect())
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

/// Fits a line to the undisturbed times of each design, or to the fastest ones of all if one design has too few of them. The lines of
/// single rounds give the range. `replays` are the rounds of each subject; the last one is the replay without an allocator. Every
/// event of the load is a call.
fn fitted(counts: &[Counts], replays: &[Vec<Round>], core: &CoreWatch) -> Result<CodeCosts, ValidateError> {
    let (own, designs) = replays.split_last().ok_or(ValidateError::NoPrediction)?;
    let alone = |rounds: &[Round]| alone_ns(rounds, core, ALONE_IN_ROUND);
    let ns_of: &dyn Fn(&[Round]) -> Option<f64> = if have_alone(replays, core) { &alone } else { &fast_ns };
    // The line through the times of these rounds.
    let line_of = |number: Range<usize>| {
        let own_ns = ns_of(own.get(number.clone())?)?;
        let point = |(counts, rounds): (&Counts, &Vec<Round>)| {
            Some((counts.instructions, ns_of(rounds.get(number.clone())?)? - own_ns - counts.memory_ns))
        };
        let points: Option<Vec<_>> = counts.iter().zip(designs).map(point).collect();
        points.map(|points| line(&points))
    };
    let (slope, height) = line_of(0..own.len()).ok_or(ValidateError::NoPrediction)?;
    let (mut slopes, mut heights): (Vec<f64>, Vec<f64>) = (0..own.len())
        .filter_map(|round| line_of(round..round + 1))
        .map(|(slope, height)| (slope.max(0.0), height.max(0.0)))
        .unzip();
    if slopes.is_empty() {
        (slopes, heights) = (vec![slope.max(0.0)], vec![height.max(0.0)]);
    }
    let cost = |rounds, of_all: f64| {
        let (range, median_ns) = (Cost::of(rounds, 1.0)?, of_all.max(0.0));
        Some(Cost { median_ns, low_ns: range.low_ns.min(median_ns), high_ns: range.high_ns.max(median_ns), ..range })
    };
    let costs = cost(slopes, slope).zip(cost(heights, height));
    costs.map(|(instruction, call)| CodeCosts { instruction, call }).ok_or(ValidateError::NoPrediction)
}

/// The lower quartile of the times of an event in the pieces that had the core alone; `None` if fewer than `least` had. After other
/// work, the first ones find less of their data in the caches.
fn alone_ns(rounds: &[Round], core: &CoreWatch, least: usize) -> Option<f64> {
    quantile(rounds.iter().flatten().filter(|piece| core.is_alone(piece.additions_per_cycle)), 0.25, least)
}

/// Whether each subject has enough pieces that had the core alone.
fn have_alone(replays: &[Vec<Round>], core: &CoreWatch) -> bool {
    replays.iter().all(|rounds| alone_ns(rounds, core, ALONE_ENOUGH).is_some())
}

/// The time of an event that [`FAST_SHARE`] of all pieces are below: what disturbs a piece only makes it longer. With a larger share, the
/// time of an instruction would follow the share of pieces that each design has alone (docs/lab/time-model.md).
fn fast_ns(rounds: &[Round]) -> Option<f64> {
    quantile(rounds.iter().flatten(), FAST_SHARE, 1)
}

/// The time of an event that a share of the pieces are below, of at least so many.
fn quantile<'a>(pieces: impl Iterator<Item = &'a Piece>, share: f64, least: usize) -> Option<f64> {
    let mut times: Vec<f64> = pieces.map(|piece| piece.cpu_ns as f64 / piece.events.max(1) as f64).collect();
    times.sort_by(f64::total_cmp);
    times.get((times.len() as f64 * share) as usize).copied().filter(|_| times.len() >= least)
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

    fn piece(cpu_ns: u64, additions_per_cycle: f32) -> Piece {
        Piece { events: 100, cpu_ns, additions_per_cycle }
    }

    fn watched(replays: &[Vec<Round>], alone_from: f32) -> CoreWatch {
        let mut core = CoreWatch::knowing(alone_from);
        replays.iter().flatten().flatten().for_each(|piece| core.note(piece.additions_per_cycle));
        core
    }

    #[test]
    fn pieces_beside_other_work_do_not_count() {
        // Instructions take 0.1 ns, a call 2 ns besides, and the replay 1. Beside other work everything takes twice as long.
        let round = |instructions: f64, undisturbed: usize| -> Round {
            let ns = (100.0 * (1.0 + 2.0 + 0.1 * instructions)) as u64;
            let slow = std::iter::repeat_n(piece(2 * ns, 2.0), 90);
            slow.chain(std::iter::repeat_n(piece(ns, 3.8), undisturbed)).collect()
        };
        let own = vec![vec![piece(100, 3.8); 60], vec![piece(100, 3.8); 60]];
        let counts = [10.0, 40.0].map(|instructions| Counts { instructions, memory_ns: 0.0 });
        // In the first round the second design was never alone.
        let replays = [vec![round(10.0, 60), round(10.0, 60)], vec![round(40.0, 0), round(40.0, 60)], own.clone()];
        let CodeCosts { instruction, call } = fitted(&counts, &replays, &watched(&replays, 0.0)).expect("costs");
        assert!((instruction.median_ns - 0.1).abs() < 1e-9 && (call.median_ns - 2.0).abs() < 1e-9, "{instruction:?}");
        assert_eq!((instruction.rounds, call.rounds), (1, 1), "only the second round has a line");
        // If one is hardly ever alone, the fastest pieces of all count, however often each design was disturbed.
        let replays = [vec![round(10.0, 3), round(10.0, 50)], vec![round(40.0, 2), round(40.0, 4)], own.clone()];
        let CodeCosts { instruction, .. } = fitted(&counts, &replays, &watched(&replays, 3.7)).expect("costs");
        assert!((instruction.median_ns - 0.1).abs() < 1e-9 && instruction.rounds == 2, "{instruction:?}");
        // Nothing tells that all are disturbed.
        let replays = [vec![round(10.0, 0), round(10.0, 0)], vec![round(40.0, 0), round(40.0, 0)], own];
        let CodeCosts { instruction, .. } = fitted(&counts, &replays, &watched(&replays, 3.7)).expect("costs");
        assert!((instruction.median_ns - 0.2).abs() < 1e-9, "{instruction:?}");
    }

    #[test]
    fn rounds_are_told_from_runs() {
        let run = |number: u64| vec![piece(0, 1.0), piece(number, 1.0), piece(number, 1.0), piece(9, 1.0)];
        // A warm-up round and two more, of two runs each.
        let runs: Vec<Vec<Piece>> = (1..=6).map(run).collect();
        let rounds: Vec<Vec<u64>> =
            counted_rounds(&runs, 2).map(|round| round.iter().map(|piece| piece.cpu_ns).collect()).collect();
        assert_eq!(rounds, [[3, 3, 4, 4], [5, 5, 6, 6]]);
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

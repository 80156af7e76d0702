//! What an instruction of the preloadable allocator takes on this machine, and a call besides.
//!
//! How many of its instructions a processor executes in a cycle depends on the processor: 5 on one, 2.5 on another. So
//! designs that take different numbers of instructions for the same calls, on memory that the first caches hold, are
//! replayed in rounds. A line is fitted to their times: its slope is the time of an instruction, and its height above 0
//! that of a call.

use std::path::Path;
use std::time::Duration;

use hksim_cost_model::{CodeCosts, Cost};
use hksim_engine::TouchRule;
use hksim_explore::described::Described;
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_explore::inputs::Trace;
use hksim_explore::runs::setup;
use hksim_policy::Policy;
use hksim_policy::vocabulary::{Header, Purge};
use hksim_replay::compare::{Allocator, Found, WARM_UP_RUNS};
use hksim_replay::{Measure, Mode, ReplayError, ReplaySpec, Target, TimedReplay};
use hksim_sim::{Counted, SimConfig};
use hksim_time_model::{PathCosts, Time, instructions};
use hksim_timing::{Arrangement, Effort, Plan, Sample, Timed, Timings, time};
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
    /// Predicted nanoseconds of memory and kernel.
    rest_ns: f64,
}

/// Measures the costs of code by replays on these allocators, those of [`designs`], in so many rounds. The profile gives the
/// costs of memory and kernel.
///
/// # Errors
/// A design cannot be simulated, or a replay cannot start.
pub fn code_costs(allocators: &[Allocator], profile: &Profile, rounds: u32) -> Result<CodeCosts, ValidateError> {
    let load = RandomMixed { cycles: CYCLES, ws: SLOTS, max: BYTES_MAX, ..RandomMixed::default() };
    let trace = Trace::workload(Workload::RandomMixed(load))?;
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let path = folder.path().join("calls.hkt");
    trace.write(&path)?;
    let (mut counts, mut replays) = (Vec::new(), Vec::new());
    for Allocator { own, found, .. } in allocators {
        let (Some(own), Found::Here(target)) = (own, found) else { continue };
        counts.push(counted(&own.policy, &trace, profile)?);
        replays.push(TimedReplay::of(&spec(&path, target.clone()))?);
    }
    replays.push(TimedReplay::harness(&spec(&path, Target::C_LIBRARY))?);
    let effort = Effort { precision: 0.0, time_max: Duration::MAX, rounds_min: rounds, rounds_max: rounds };
    let plan = Plan { effort, warm_up_rounds: WARM_UP_RUNS, arrangement: Arrangement::InTurn, seed: SEED };
    let timings = time(&replays.iter().collect::<Vec<_>>(), &plan, &mut |_| {});
    fitted(&counts, timings)
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
    Ok(Counts { instructions, rest_ns: parts.memory + parts.kernel })
}

/// Fits a line to the fast times of each design: what disturbs a replay only makes it longer, and for some time. The lines of single
/// rounds give the range. The last subject is the replay without an allocator.
fn fitted(counts: &[Counts], timings: Timings<ReplayError>) -> Result<CodeCosts, ValidateError> {
    let mut samples = Vec::new();
    for Timed { samples: found, failure, .. } in timings.subjects {
        failure.map_or(Ok(()), Err)?;
        samples.push(found);
    }
    let own = samples.pop().unwrap_or_default();
    // The line through the times that `ns_of` takes from the samples of each subject.
    let line_by = |ns_of: &dyn Fn(&[Sample]) -> Option<f64>| {
        let own_ns = ns_of(&own)?;
        let point = |(counts, samples): (&Counts, &Vec<Sample>)| {
            Some((counts.instructions, ns_of(samples)? - own_ns - counts.rest_ns))
        };
        Some(line(&counts.iter().zip(&samples).filter_map(point).collect::<Vec<_>>()))
    };
    let of_round = |round: usize| line_by(&|samples| Some(samples.get(round)?.cpu_ns_per_call()));
    let (slopes, heights): (Vec<f64>, Vec<f64>) =
        (0..own.len()).filter_map(of_round).map(|(slope, height)| (slope.max(0.0), height.max(0.0))).unzip();
    let (slope, height) = line_by(&fast_ns).ok_or(ValidateError::NoPrediction)?;
    let cost = |rounds, of_fast: f64| {
        let range = Cost::of(rounds, 1.0)?;
        let median_ns = of_fast.max(0.0);
        Some(Cost { median_ns, low_ns: range.low_ns.min(median_ns), high_ns: range.high_ns.max(median_ns), ..range })
    };
    let costs = cost(slopes, slope).zip(cost(heights, height));
    costs.map(|(instruction, call)| CodeCosts { instruction, call }).ok_or(ValidateError::NoPrediction)
}

/// The lower quartile of the times of a call.
fn fast_ns(samples: &[Sample]) -> Option<f64> {
    let mut times: Vec<f64> = samples.iter().map(Sample::cpu_ns_per_call).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 4).copied()
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

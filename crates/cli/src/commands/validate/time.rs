//! `hksim validate --time`: predicted times beside measured ones.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_explore::flags::{BaseKernel, RunConfig};
use hksim_replay::Mode;
use hksim_replay::compare::{COUNTED_RUNS_MAX, WARM_UP_RUNS};
use hksim_reports::time_validation;
use hksim_results::Stamp;
use hksim_results::validate::TimeValidation;
use hksim_validate::call_time::{Candidate, Replays, TimeVerdict, TimedTrace, time_designs, timeless};

use super::{Args, CHECK_FAILED};
use crate::allocators;
use crate::inputs::Replayable;
use crate::memory;
use crate::output::progress::Progress;
use crate::output::screen;
use crate::runs::setup;

/// The heading of the flags about times.
pub const HEADING: &str = "Timing";

/// Refuses what cannot be combined.
///
/// # Errors
/// `--time` with what has no predicted time, or flags of it without it.
pub fn refuse(args: &Args) -> Result<()> {
    if !args.time {
        if args.precision.are_asked() {
            bail!("--precision, --budget and --seed are about times; add --time");
        }
        return Ok(());
    }
    if args.traces.iter().any(|path| memory::is_recording(path)) {
        bail!("--time: a memory recording has no allocator calls to time; leave it out");
    }
    args.design.refuse("time", true, "the time of designs is not known; leave one of them out")?;
    if args.mode == Mode::Threaded {
        bail!("--time: times are predicted for replays in trace order; use --mode ordered");
    }
    if args.forks.are_asked() {
        bail!("--time: replays are timed without forks; leave --fork-at out");
    }
    Ok(())
}

/// Predicts and times every design on every trace.
///
/// # Errors
/// There are no costs of this machine, or a replay cannot start.
pub fn run(args: &Args, traces: &[Replayable], configs: &[RunConfig]) -> Result<ExitCode> {
    let no_profile =
        "--time: needs the costs of this machine; run `hksim calibrate` once (10 s), or give --profile FILE";
    let profile = args.profile.read(&args.output)?.context(no_profile)?;
    let (effort, seed) = (args.precision.effort(args.runs), args.precision.seed());
    let runs = configs.len() as u64 * u64::from(COUNTED_RUNS_MAX) + u64::from(WARM_UP_RUNS + effort.rounds_max);
    let of_trace = |replayable: &Replayable| -> Result<TimedTrace> {
        let Replayable { trace, path, label } = replayable;
        let numbered = configs.iter().enumerate();
        let candidates =
            numbered.map(|(row, config)| candidate(row, config, replayable)).collect::<Result<Vec<_>>>()?;
        let replays = Replays { trace: path, name: label, threads: trace.summary.threads, effort, seed };
        let progress = Progress::of(runs, "counted runs and timed rounds at most");
        Ok(time_designs(&replays, &candidates, &profile, &(), &|| progress.advance(1))?)
    };
    let timed_traces = traces.iter().map(of_trace).collect::<Result<Vec<_>>>()?;
    let report = TimeValidation { stamp: Stamp::here(), timed_traces };
    args.output.emit(&report, &time_validation::csv(&report), || time_validation::text(&report, screen::columns()))?;
    let mut rows = report.timed_traces.iter().flat_map(|timed| &timed.rows);
    let has_failed = rows.any(|row| row.verdict == TimeVerdict::Failed);
    Ok(if has_failed { ExitCode::from(CHECK_FAILED) } else { ExitCode::SUCCESS })
}

/// A design as a program has it, without purges that a replay would not make.
fn candidate(row: usize, config: &RunConfig, replayable: &Replayable) -> Result<Candidate> {
    let (policy, changed) = timeless(&config.policy);
    let config = RunConfig { policy, ..config.clone() };
    let setup = setup(&config, &replayable.trace, BaseKernel::Host)?;
    let allocator = allocators::as_programs_have_it(allocators::native(&format!("row {row}"), policy)?)?;
    Ok(Candidate { setup, allocator, changed })
}

//! `hksim rules`: checks the kernel model against the running kernel.

mod report;
mod scripts;
mod view;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use hksim_conformance::random::{self, RandomConfig};
use hksim_conformance::{MachineError, OPS_MAX, RuleRow, RuleVerdict, Runner, SetModes, rules};
use serde::Serialize;

use crate::output::progress::Progress;
use crate::output::{OutputArgs, note, warn};
use hksim_results::Stamp;

/// Exit status when a check failed.
const CHECK_FAILED: u8 = 1;

/// Arguments of `rules`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim rules\n  hksim rules --random 100 --seed 7\n  hksim rules --script case.txt --predict-only --kernel 6.1"
)]
pub struct Args {
    /// Run this page-operation script instead of the built-in ones (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "random")]
    pub script: Option<PathBuf>,
    /// Print the model's prediction for the script without running it
    #[arg(long, requires = "script")]
    pub predict_only: bool,
    /// Predict for this kernel version: 5.15 to 7.2, or host
    #[arg(long, value_name = "VERSION", requires = "predict_only")]
    pub kernel: Option<String>,
    /// Run this many random scripts; print each failing one after shrinking it
    #[arg(long, value_name = "N")]
    pub random: Option<u64>,
    /// Seed the first random script with this number, and each further one with the next
    #[arg(long, value_name = "S", default_value_t = 1, requires = "random")]
    pub seed: u64,
    /// Limit a random script to this many operations
    #[arg(long, value_name = "K", default_value_t = OPS_MAX, requires = "random")]
    pub ops: u64,
    /// Set the machine's modes that scripts name (needs root); they are restored at the end, even if the run is killed
    #[arg(long)]
    pub set_modes: bool,
    /// Cycle the random scripts through 15 sets of modes
    #[arg(long, requires = "random", requires = "set_modes")]
    pub all_modes: bool,
    /// Where the result goes
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The result of the built-in scripts.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The schema version, and the program that wrote the result.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The running kernel.
    pub kernel_release: String,
    /// Scripts that passed.
    pub passed: usize,
    /// Scripts that failed.
    pub failed: usize,
    /// Scripts that could not run.
    pub skipped: usize,
    /// One row per script.
    pub rules: Vec<RuleRow>,
}

/// The result of random scripts.
#[derive(Debug, Serialize)]
struct RandomReport<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    /// The running kernel.
    kernel_release: String,
    /// Maximum operations per script.
    ops_max: u64,
    #[serde(flatten)]
    outcome: &'a random::Outcome,
}

/// Checks rules, or scripts.
///
/// # Errors
/// Bad input, or the process that executes a script died or hung.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[args.script.as_deref()])?;
    let failed = match (&args.script, args.random) {
        (Some(path), _) => scripts::run(args, path)?,
        (None, Some(count)) => run_random(args, count)?,
        (None, None) => run_rules(args)?,
    };
    Ok(if failed { ExitCode::from(CHECK_FAILED) } else { ExitCode::SUCCESS })
}

/// A runner, or the reason why scripts cannot run here.
fn runner(args: &Args) -> Result<std::result::Result<Runner, String>> {
    let waiting = || note("waiting: another process has changed this machine's modes and not restored them yet");
    let modes = if args.set_modes { Some(SetModes::new(waiting)?) } else { None };
    match Runner::new(modes) {
        Ok(runner) => {
            for unobservable in runner.unobservable() {
                warn(&format!("not compared: {}", unobservable.what()));
            }
            Ok(Ok(runner))
        }
        Err(MachineError::Unsupported { reason }) => Ok(Err(reason)),
        Err(why) => Err(why.into()),
    }
}

fn run_rules(args: &Args) -> Result<bool> {
    let rows = match runner(args)? {
        Ok(mut runner) => rules(&mut runner, |_| {})?,
        Err(reason) => hksim_conformance::skipped_rules(&reason),
    };
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let report = Report {
        stamp: Stamp::here(),
        kernel_release: hksim_conformance::release()?,
        passed: count(RuleVerdict::Pass),
        failed: count(RuleVerdict::Fail),
        skipped: count(RuleVerdict::Skipped),
        rules: rows,
    };
    args.output.emit(&report, &report.rules, || view::rules(&report))?;
    Ok(report.failed > 0)
}

fn run_random(args: &Args, count: u64) -> Result<bool> {
    if args.ops == 0 {
        bail!("--ops 0: a script needs at least one operation");
    }
    let mut runner = match runner(args)? {
        Ok(runner) => runner,
        Err(reason) => {
            warn(&format!("skipped: {reason}"));
            return Ok(false);
        }
    };
    let modes = if args.all_modes { random::all_modes() } else { Vec::new() };
    let plan = RandomConfig { seed: args.seed, scripts: count, ops_max: args.ops, modes };
    let progress = Progress::of(count, "scripts");
    let outcome = random::run(&mut runner, &plan, |_| {
        progress.advance(1);
        ControlFlow::Continue(())
    })?;
    drop(progress);
    let report = RandomReport {
        stamp: Stamp::here(),
        kernel_release: hksim_conformance::release()?,
        ops_max: args.ops,
        outcome: &outcome,
    };
    args.output.emit(&report, &outcome.failures, || view::random(&outcome))?;
    Ok(!outcome.failures.is_empty())
}

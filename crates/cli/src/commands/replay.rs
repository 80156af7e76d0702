//! `hksim replay`: replays a trace on a real allocator.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use hksim_policy::Policy;
use hksim_policy::vocabulary::Align;
use hksim_replay::{Measure, Mode, ReplaySpec, Target, TimesAlone, replay, replay_limited, times_alone};
use hksim_sim::report::TouchLabel;
use hksim_text::nearest;

use crate::allocators;
use crate::flags::timing::TimingArgs;
use crate::flags::{DesignArgs, HostPolicyArgs, PolicyArgs};
use crate::forks::ForkArgs;
use crate::host;
use crate::inputs;
use crate::memory;
use crate::output::{OutputArgs, screen};
use hksim_explore::point::Point;
use hksim_replay::compare::Found;
use hksim_results::Stamp;
use hksim_results::replay::{LimitedReport, ReplayReport};
use hksim_timing::Plan;
use hksim_validate::Checked;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim replay app.hkt\n  hksim replay app.hkt --on jemalloc --mode threaded\n  hksim replay app.hkt --on mimalloc --precision 1% --budget 30s\n  hksim replay app.hkt --memory-limit 64M"
)]
pub struct Args {
    /// Replay this trace
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    /// Replay on this allocator: native (the simulated one), glibc, mimalloc, jemalloc, gperftools, tbbmalloc,
    /// native:POLICY as in `compare`, or a malloc library to preload
    #[arg(long, value_name = "NAME|LIB.so", default_value = "native")]
    on: String,
    /// Replay on one thread in trace order (ordered) or on the trace's own threads (threaded)
    #[arg(long, value_name = "MODE", default_value = "ordered", value_parser = parse_mode)]
    mode: Mode,
    /// Record the page operations of the replay to a file instead of measuring it (needs root); `sim`, `sweep` and
    /// `validate` take the file
    #[arg(long, value_name = "FILE.hkm", conflicts_with_all = ["stop_at", "fork_at", "runs", "precision", "budget", "duet", "seed"])]
    memory: Option<PathBuf>,
    /// Stop the measured run (SIGSTOP) after this event, at this mark, or at the end, and print its process id and base
    #[arg(long, value_name = "N|MARK|end", hide_short_help = true)]
    stop_at: Option<Point>,
    #[command(flatten)]
    forks: ForkArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    policy: HostPolicyArgs,
    #[command(flatten)]
    design: DesignArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs in which the processor's mode is sampled.
const SAMPLED_RUNS: u32 = 1;

/// The words of `--mode`.
pub const MODES: [&str; 2] = ["ordered", "threaded"];

/// Parses the word of `--mode`.
///
/// # Errors
/// The word is not a mode; the message names the modes.
pub fn parse_mode(word: &str) -> Result<Mode, String> {
    match word {
        "ordered" => Ok(Mode::Ordered),
        "threaded" => Ok(Mode::Threaded),
        _ => Err(format!("modes are ordered and threaded{}", nearest::question(word, MODES))),
    }
}

/// Replays.
///
/// # Errors
/// Bad input, or the child cannot run.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&[], &[])?;
    let policy = args.policy.checked_besides("memory-limit")?;
    let config = policy.config()?;
    let trace = inputs::file(&args.trace)?;
    let label = args.design.label(policy)?;
    if args.on == "native" && label.is_none() {
        host::can_serve(&config)?;
    }
    let rule = config.touch_rule(trace.header.touch);
    let (on, design) = match &label {
        Some(label) => {
            args.design.refuse("on", args.on != "native", "name one allocator")?;
            args.design.refuse("mode threaded", args.mode == Mode::Threaded, "a design serves one thread at a time")?;
            (label.target(), None)
        }
        None => target(&args.on, policy, &config.policy)?,
    };
    if args.stop_at.is_some() && (args.mode, design.is_none()) != (Mode::Ordered, false) {
        bail!("--stop-at: only an ordered replay on the native allocator can stop; use --mode ordered and --on native");
    }
    if args.forks.are_asked()
        && label.is_none()
        && (args.mode, design.as_ref().map(|design| design.align)) != (Mode::Ordered, Some(Align::Arena))
    {
        bail!(
            "--fork-at: only an ordered replay on the native allocator can fork; use --mode ordered, --on native and --align arena"
        );
    }
    let stop_at = args.stop_at.as_ref().map(|point| point.event(&args.trace)).transpose()?;
    let (mode, measure) = (args.mode, Measure::default());
    let library = match &on {
        Target::Malloc { preload, .. } => preload.clone(),
        Target::Native(_) | Target::Design { .. } => None,
    };
    let (memory_policy, forks) = (config.memory_policy, args.forks.windows(&trace)?);
    let spec = ReplaySpec { trace: args.trace.clone(), on, touch: rule, memory_policy, mode, measure, stop_at, forks };
    if let Some(path) = &args.memory {
        let format = args.output.format.text().context("--format parquet: the report of a recording is text")?;
        return memory::record::replay_and_report(&spec, path, format);
    }
    if let Some(limit_bytes) = config.memory_limit_bytes {
        let replayed = replay_limited(&spec, limit_bytes)?;
        let report = LimitedReport::of(trace.label(), args.on.clone(), limit_bytes, replayed);
        return args.output.emit(&report, &[&report], || hksim_reports::memory_limit::replayed(&report));
    }
    let plan = timing_plan(&args.timing, args.mode)?;
    let mut replayed = replay(&spec)?;
    let TimesAlone { times, ended, core_shared_share, skipped } =
        times_alone(&spec, replayed.timed, plan.as_ref(), SAMPLED_RUNS)?;
    replayed.skipped.extend(skipped);
    let source = rule.source(trace.header.touch);
    let report = ReplayReport {
        stamp: Stamp::here(),
        trace: trace.label(),
        allocator: label.as_ref().map_or(args.on.clone(), |label| label.design.clone()),
        library,
        mode: args.mode,
        policy: design,
        design: label,
        touch: TouchLabel { rule, source },
        times,
        ended,
        core_shared_share,
        replayed,
    };
    args.output.emit(&report, &[&report], || hksim_reports::replay::table(&report, screen::columns()))
}

/// The timed rounds, if a flag asks for them. Otherwise a single run is timed.
fn timing_plan(timing: &TimingArgs, mode: Mode) -> Result<Option<Plan>> {
    let (effort, arrangement, seed) = (timing.rounds.effort(), timing.arrangement(mode)?, timing.rounds.seed());
    // The measured run has warmed the file cache.
    Ok(timing.are_asked().then_some(Plan { effort, warm_up_rounds: 0, arrangement, seed }))
}

/// The named allocator, with its policy if it has one.
fn target(on: &str, policy: &PolicyArgs, design: &Policy) -> Result<(Target, Option<Policy>)> {
    Ok(match on {
        "native" => (Target::Native(Box::new(*design)), Some(*design)),
        other => {
            if let Some(flag) = policy.policy_flag() {
                bail!("--{flag} applies to `--on native` only, not to {other}; leave it out");
            }
            let allocator = allocators::named("on", other)?;
            let design = allocator.own.map(|own| own.policy);
            match allocator.found {
                Found::Here(target) => (target, design),
                Found::Missing(why) => bail!("--on {other}: {why}"),
            }
        }
    })
}

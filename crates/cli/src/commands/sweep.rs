//! `hksim sweep`: simulates many designs on several traces, side by side.

pub mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_explore::described::Described;
use hksim_explore::shard::Shard;
use hksim_sim::SimConfig;
use serde::Serialize;

use crate::flags::between::between;
use crate::flags::{BaseKernel, DesignArgs, HugeList, ModesFrom, PolicyArgs, RunConfig};
use crate::forks::ForkArgs;
use crate::inputs;
use crate::memory;
use crate::memory::settings::MemoryArgs;
use crate::memory::sim::Printed;
use crate::output::columns::ColumnsArgs;
use crate::output::progress::Progress;
use crate::output::screen::HEADING;
use crate::output::{OutputArgs, ResultFormat};
use crate::pictures;
use crate::question::QuestionArgs;
use crate::runs::{on_workers, setup_of};
use crate::system_time::ProfileArgs;
use hksim_explore::inputs::Trace;
use hksim_explore::plan::Plan;
use hksim_explore::priced::Priced;
use hksim_output_files::refuse_planted;
use hksim_results::Stamp;
use hksim_results::sweep::{Head, PricedSweep, ShardResult, ShardRow};

/// The name of the picture if `--plot` has no value.
const DEFAULT_PLOT: &str = "hksim-sweep.svg";

/// The heading of flags for sweeps that take long.
const LARGE: &str = "Large sweeps";

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim sweep app.hkt --huge --superslab 1M,2M --plot\n  hksim sweep app.hkt --preset default,hakmem --format csv"
)]
pub struct Args {
    /// Simulate these traces [default: two built-in workloads, random-mixed and server]
    #[arg(value_name = "TRACE.hkt")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    design: DesignArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Replay the traces on each of these allocators (as in `compare`), once for each mode of --thp, which the allocator
    /// reads as if it were the machine's, and predict their page operations under every setting (needs root): hksim, glibc, jemalloc:thp=always, native:POLICY, LIB.so
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    allocators: Vec<String>,
    #[command(flatten)]
    forks: ForkArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    question: QuestionArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    columns: ColumnsArgs,
    /// Simulate only this part of the rows, for `hksim merge` (needs --format json): 1/4 is the first of four
    #[arg(long, value_name = "I/N", conflicts_with = "plot", help_heading = LARGE, hide_short_help = true)]
    shard: Option<Shard>,
    /// Note finished rows in this file, and skip those that it already has
    #[arg(long, value_name = "FILE", help_heading = LARGE, hide_short_help = true)]
    resume: Option<PathBuf>,
    /// Run this many simulations at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = between(1u16, 1024), help_heading = LARGE, hide_short_help = true)]
    jobs: Option<u16>,
    /// Draw the result as SVG or PNG [name if omitted: hksim-sweep.svg]
    #[arg(long, value_name = "PICTURE", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_PLOT, value_parser = pictures::parse_picture, help_heading = HEADING)]
    plot: Option<PathBuf>,
}

/// Simulates every design on every trace. The exit status is 1 if a library of `--allocators` crashed.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    args.output.check(&[args.plot.as_deref(), args.resume.as_deref()], &[args.profile.path()])?;
    if args.shard.is_some() && args.output.format != ResultFormat::Json {
        bail!("--shard: a shard is a part for `hksim merge`; add --format json -o FILE");
    }
    // Shards from several machines are parts of one result, so only a profile that is given can price them.
    let profile = if args.shard.is_some() { args.profile.given()? } else { args.profile.read(&args.output)? };
    if args.traces.iter().any(|path| memory::is_recording(path)) {
        args.refuse_for_recording()?;
        let result = memory::sim::sweep(&args.traces, &args.policy, &args.memory, profile.as_ref(), &args.printed())?;
        return draw(args, &result).map(done);
    }
    if !args.allocators.is_empty() {
        args.refuse_for_recording()?;
        let request = memory::allocators::Request {
            traces: &args.traces,
            allocators: &args.allocators,
            policy: &args.policy,
            memory: &args.memory,
            profile: profile.as_ref(),
            printed: &args.printed(),
        };
        let swept = memory::allocators::sweep(&request)?;
        swept.result.as_ref().map_or(Ok(()), |result| draw(args, result))?;
        return swept.status();
    }
    args.memory.refuse_for_trace()?;
    view::check(&args.columns, &args.output)?;
    let configs = args.policy.configs(HugeList::All)?;
    let designs = args.design.labels(&args.policy)?;
    if designs.is_empty() {
        let rows: Vec<_> = configs.iter().map(|config| (config.policy, config)).collect();
        return sweep(args, &rows, profile.as_ref()).map(done);
    }
    args.design.refuse("shard", args.shard.is_some(), "`hksim merge` joins rows of SuperSlab; leave --shard out")?;
    let rows: Vec<_> =
        designs.iter().flat_map(|design| configs.iter().map(|config| (design.clone(), config))).collect();
    sweep(args, &rows, profile.as_ref()).map(done)
}

/// Simulates every allocator, with its program and kernel, on every trace.
fn sweep<P: Described>(args: &Args, allocators: &[(P, &RunConfig)], profile: Option<&Profile>) -> Result<()> {
    let traces = if args.traces.is_empty() { Trace::built_in()? } else { inputs::files(&args.traces)? };
    let question = args.question.asked(&traces, profile)?;
    let plan = Plan::new(traces, |trace| {
        let forks = args.forks.windows(trace)?;
        let setup = |(allocator, config): &(P, &RunConfig)| {
            let (tlb, counted) = (args.question.core(), allocator.counted(profile));
            let setup = setup_of(allocator, config, trace, BaseKernel::AsItComes)?;
            anyhow::Ok(SimConfig { forks: forks.clone(), tlb, counted, ..setup })
        };
        allocators.iter().map(setup).collect()
    })?;
    let configs: Vec<RunConfig> = allocators.iter().map(|(_, config)| (*config).clone()).collect();
    let head = Head { rows_per_trace: configs.len(), question, modes: ModesFrom::of(&configs) };
    let numbers: Vec<usize> = args.shard.map_or_else(|| (0..plan.rows()).collect(), |shard| shard.rows(plan.rows()));
    if let Some(journal) = &args.resume {
        refuse_planted(journal)?;
    }
    let reports =
        on_workers(args.jobs, || Ok(plan.simulate(&numbers, args.resume.as_deref(), &Progress::events(0))?))?;
    let rows: Vec<Priced<P>> = reports.into_iter().map(|row| Priced::new(row, profile)).collect();
    if let Some(shard) = args.shard {
        let rows = numbers.into_iter().zip(rows).map(|(row, priced)| ShardRow { row, priced }).collect();
        let sweep = plan.digest(&head, profile);
        let part = ShardResult { stamp: Stamp::here(), shard, sweep, rows_total: plan.rows(), head, rows };
        return args.output.emit(&part, &[()], String::new);
    }
    let result = PricedSweep::new(rows, &head)?;
    view::emit(&result, &args.output, &args.columns, &head)?;
    draw(args, &result)
}

impl Args {
    /// How the rows of memory recordings are printed.
    fn printed(&self) -> Printed<'_> {
        Printed { output: &self.output, columns: &self.columns }
    }

    /// Checks that no flag was given that is about traces only.
    fn refuse_for_recording(&self) -> Result<()> {
        self.design.refuse_for_recording()?;
        for (flag, given) in [("shard", self.shard.is_some()), ("resume", self.resume.is_some())] {
            if given {
                bail!(
                    "--{flag} is about traces (.hkt): a memory recording is simulated under all settings in one pass"
                );
            }
        }
        self.question.refuse_for_recording()
    }
}

/// Draws the result, if that was asked for.
fn draw<T: Serialize>(args: &Args, result: &T) -> Result<()> {
    match &args.plot {
        Some(path) => pictures::write_designs(path, &serde_json::to_value(result).context("result as JSON")?),
        None => Ok(()),
    }
}

//! `hksim sim`: simulates one design on one trace.

pub mod view;

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use hksim_cost_model::Profile;
use hksim_cost_model::system_time::states;
use hksim_explore::described::Described;
use hksim_policy::vocabulary::Align;
use hksim_results::csv;
use hksim_results::layouts::{self, Layouts};
use hksim_results::sim::SimResult;
use hksim_sim::SimConfig;
use hksim_sim::simulate::Marks;
use hksim_sim::tlb::Geometry;
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;

use crate::flags::{BaseKernel, DesignArgs, PolicyArgs, RunConfig};
use crate::forks::ForkArgs;
use crate::inputs;
use crate::memory;
use crate::memory::settings::MemoryArgs;
use crate::output::{OutputArgs, file};
use crate::question::{core_help, parse_core};
use crate::runs::{bracketed, setup_of, simulate_all, with_bracket};
use crate::system_time::ProfileArgs;
use hksim_explore::exports::pages;
use hksim_explore::point::Point;
use hksim_explore::priced::Priced;

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Examples:\n  hksim sim app.hkt\n  hksim sim app.hkt --huge=never --purge none --format json -o app.json"
)]
pub struct Args {
    /// Simulate this trace, or this memory recording (.hkm)
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    design: DesignArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Model the data TLB of a core: its reach, and its misses if the trace has every access
    #[arg(long, value_name = "CORE", value_parser = parse_core, long_help = core_help("Model the data TLB of a core: reach, and misses if the trace has every access"))]
    tlb: Option<&'static Geometry>,
    /// Write the pages present at every mark to a file (docs/how-to/page-sets.md)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    dump_pages: Option<PathBuf>,
    /// Write only the pages after this event, at this mark, or at the end
    #[arg(long, value_name = "N|MARK|end", requires = "dump_pages", hide_short_help = true)]
    at: Option<Point>,
    #[command(flatten)]
    forks: ForkArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Simulates. If touches are neither recorded nor given, simulates every assumption about them.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&[args.dump_pages.as_deref()], &[args.profile.path()])?;
    if memory::is_recording(&args.trace) {
        let profile = args.profile.read(&args.output)?;
        args.design.refuse_for_recording()?;
        return memory::sim::sim(&args.trace, &args.policy, &args.memory, profile.as_ref(), &args.output);
    }
    args.memory.refuse_for_trace()?;
    let config = args.policy.config()?;
    let profile = args.profile.read(&args.output)?;
    match args.design.label(&args.policy)? {
        Some(design) => simulate(args, &design, &config, profile.as_ref()),
        None => simulate(args, &config.policy, &config, profile.as_ref()),
    }
}

/// Simulates an allocator.
fn simulate<P: Described>(args: &Args, allocator: &P, config: &RunConfig, profile: Option<&Profile>) -> Result<()> {
    let trace = inputs::file(&args.trace)?;
    let headline = SimConfig {
        tlb: args.tlb,
        counted: allocator.counted(profile),
        forks: args.forks.windows(&trace)?,
        ..setup_of(allocator, config, &trace, BaseKernel::AsItComes)?
    };
    if let Some(path) = &args.dump_pages {
        dump_pages(args, path, &headline)?;
    }
    let is_assumed = config.touch.is_none() && headline.touch != hksim_engine::TouchRule::Recorded;
    let mut setups = if is_assumed { bracketed(&headline) } else { vec![headline.clone()] };
    let touches = setups.len();
    if allocator.of_modes().align != Align::Arena {
        setups.extend(layouts::setups(&headline));
    }
    let mut rows = simulate_all(&[(trace, setups)])?;
    let elsewhere = rows.split_off(touches);
    let report = with_bracket(rows).ok_or_else(|| anyhow!("no result"))?;
    let layouts = (!elsewhere.is_empty()).then(|| Layouts::of(&report, &elsewhere));
    let priced = Priced::new(report, profile);
    let result = SimResult { priced, layouts };
    let table = || {
        let SimResult { priced, layouts } = &result;
        view::table(&priced.report, config)
            + &layouts.iter().map(|layouts| format!("\n{}\n", layouts.text())).collect::<String>()
            + &priced.time.iter().map(|time| format!("\ntime {time}\n     of {}\n", time.valid_for)).collect::<String>()
            + &priced.time_skipped.iter().map(|why| format!("\ntime skipped: {why}\n")).collect::<String>()
            + &priced.system_time.iter().map(|time| format!("\nsystem time {}\n", time.text())).collect::<String>()
            + &states(priced.system_time.iter()).map(|states| states + "\n").unwrap_or_default()
    };
    args.output.emit(&result, &[csv::row(&result.priced)], table)
}

fn dump_pages<P: Described>(args: &Args, path: &Path, setup: &SimConfig<P>) -> Result<()> {
    let at = args.at.as_ref().map(|point| point.event(&args.trace)).transpose()?;
    let mut source = WithProfiles::new(TraceReader::open(&args.trace)?);
    let mut marks = P::simulate(&mut source, setup, at.map_or(Marks::Collect, Marks::At))?.marks;
    marks.retain(|mark| at.is_none_or(|event| mark.event == event));
    file::write(path, pages::text(setup.policy.reserved_pages()?, &marks).as_bytes())
}

//! `hksim sweep`: many designs on some traces, side by side.

mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hksim_sim::{Setup, Sweep};

use crate::chart;
use crate::flags::{BaseKernel, Choice, HugeList, PolicyArgs};
use crate::inputs::Trace;
use crate::output::{OutputArgs, note};
use crate::runs::{setup, simulate_all};

/// The picture's name where none was given.
const DEFAULT_PLOT: &str = "hksim-sweep.svg";

/// Arguments of `sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces to simulate; without: two built-in workloads, random-mixed and server
    #[arg(value_name = "TRACE.hkt")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Simulations at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Draw the result [default name: hksim-sweep.svg; drawn unasked if standard output is a terminal]
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_PLOT)]
    plot: Option<PathBuf>,
    /// Draw nothing
    #[arg(long, conflicts_with = "plot")]
    no_plot: bool,
}

/// Simulates every design on every trace.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    let choices = args.policy.choices(HugeList::All)?;
    let traces = if args.traces.is_empty() { Trace::built_in()? } else { open(&args.traces)? };
    let runs = traces.into_iter().map(|trace| {
        let setups = choices.iter().map(|choice| setup(choice, &trace, BaseKernel::AsItComes));
        let setups = setups.collect::<Result<Vec<Setup>>>()?;
        Ok((trace, setups))
    });
    let runs = runs.collect::<Result<Vec<_>>>()?;
    let workers = rayon::ThreadPoolBuilder::new().num_threads(args.jobs.map_or(0, usize::from));
    let workers = workers.build().context("cannot start the workers; try a smaller --jobs")?;
    let sweep = workers.install(|| simulate_all(&runs))?;
    args.output.emit(&sweep, &sweep.rows, || view::table(&sweep, &choices))?;
    draw(args, &sweep)
}

fn open(paths: &[PathBuf]) -> Result<Vec<Trace>> {
    paths.iter().map(|path| Trace::file(path)).collect()
}

/// Draws the result where it was asked for, or where a person is looking.
fn draw(args: &Args, sweep: &Sweep) -> Result<()> {
    let picture = |path: &Path| chart::write(path, &serde_json::to_value(sweep).context("result as JSON")?);
    if let Some(path) = &args.plot {
        return picture(path);
    }
    if !args.no_plot && std::io::stdout().is_terminal() {
        match picture(Path::new(DEFAULT_PLOT)) {
            Ok(()) => note(&format!("drew {DEFAULT_PLOT}")),
            // Nobody asked for it, so its failure is no failure of the sweep.
            Err(why) => note(&format!("not drawn: {why:#}")),
        }
    }
    Ok(())
}

/// Whether THP mode was said for every choice.
fn is_thp_given(choices: &[Choice]) -> bool {
    choices.iter().all(|choice| choice.thp.is_some())
}

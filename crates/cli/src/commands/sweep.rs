//! `hksim sweep`: simulates many designs on several traces, side by side.

mod view;

use std::path::PathBuf;

use anyhow::{Context, Result};
use hksim_cost_model::Profile;
use hksim_sim::{SimConfig, Sweep};
use serde::Serialize;
use serde_json::{Map, Value};

use super::sim::csv;
use crate::chart;
use crate::flags::{BaseKernel, HugeList, PolicyArgs};
use crate::forks::ForkArgs;
use crate::inputs::Trace;
use crate::output::OutputArgs;
use crate::output::stamp::Stamp;
use crate::runs::{setup, simulate_all};
use crate::system_time::{Priced, ProfileArgs, SystemTime};

/// The name of the picture if `--plot` has no value.
const DEFAULT_PLOT: &str = "hksim-sweep.svg";

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
    forks: ForkArgs,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Run this many simulations at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Draw the result [name if omitted: hksim-sweep.svg]
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_PLOT, value_parser = chart::parse_picture)]
    plot: Option<PathBuf>,
}

/// Simulates every design on every trace.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    args.output.check(&[args.plot.as_deref()], &[args.profile.path()])?;
    let configs = args.policy.configs(HugeList::All)?;
    let profile = args.profile.read()?;
    let traces = if args.traces.is_empty() { Trace::built_in()? } else { open(&args.traces)? };
    let runs = traces.into_iter().map(|trace| {
        let forks = args.forks.windows(&trace)?;
        let setups = configs
            .iter()
            .map(|config| Ok(SimConfig { forks: forks.clone(), ..setup(config, &trace, BaseKernel::AsItComes)? }));
        let setups = setups.collect::<Result<Vec<SimConfig>>>()?;
        Ok((trace, setups))
    });
    let runs = runs.collect::<Result<Vec<_>>>()?;
    let workers = rayon::ThreadPoolBuilder::new().num_threads(args.jobs.map_or(0, usize::from));
    let workers = workers.build().context("cannot start the worker threads; try a smaller --jobs")?;
    let sweep = PricedSweep::new(workers.install(|| simulate_all(&runs))?, profile.as_ref(), configs.len())?;
    args.output.emit(&sweep, &sweep.csv_rows(), || view::table(&sweep, &configs))?;
    match &args.plot {
        Some(path) => chart::write(path, &serde_json::to_value(&sweep).context("result as JSON")?),
        None => Ok(()),
    }
}

/// The result, with times if a profile was given.
#[derive(Debug, Serialize)]
struct PricedSweep {
    #[serde(flatten)]
    stamp: Stamp,
    rows: Vec<Priced>,
    /// Rows on the Pareto front of installs and peak resident bytes, per trace.
    pareto: Vec<usize>,
    /// Rows on the Pareto front of median system time and peak resident bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pareto_system_time: Option<Vec<usize>>,
}

impl PricedSweep {
    /// Adds system times to the rows of a sweep with `designs` designs per trace.
    fn new(sweep: Sweep, profile: Option<&Profile>, designs: usize) -> Result<PricedSweep> {
        let Sweep { rows, pareto, .. } = sweep;
        let rows = rows.into_iter().map(|row| Priced::new(row, profile)).collect::<Vec<Priced>>();
        let pareto_system_time = profile.is_some().then(|| fronts(&rows, designs.max(1)));
        Ok(PricedSweep { stamp: Stamp::HERE, rows, pareto, pareto_system_time })
    }
}

impl PricedSweep {
    /// The rows as CSV, each marked if it is on a Pareto front.
    fn csv_rows(&self) -> Vec<Map<String, Value>> {
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let mut row = csv::row(row);
            let of_time = self.pareto_system_time.as_ref().map(|front| front.contains(&number));
            row.insert("row".into(), number.into());
            row.insert("pareto".into(), self.pareto.contains(&number).into());
            row.insert("pareto_system_time".into(), of_time.into());
            row
        });
        rows.collect()
    }
}

/// The Pareto front of each trace: a row is on it if no other row is at least as good in both system time and peak
/// resident bytes and better in one of them.
fn fronts(rows: &[Priced], designs: usize) -> Vec<usize> {
    let time = |row: &Priced| row.system_time.as_ref().map_or(0.0, SystemTime::rank_s);
    let beats = |other: &Priced, row: &Priced| {
        let costs = [(time(other), time(row)), (other.report.rss_bytes_peak as f64, row.report.rss_bytes_peak as f64)];
        costs.iter().all(|(other, own)| other <= own) && costs.iter().any(|(other, own)| other < own)
    };
    let traces = rows.chunks(designs).enumerate();
    let fronts = traces.flat_map(|(trace, rows)| {
        let front = (0..rows.len()).filter(move |&row| !rows.iter().any(|other| beats(other, &rows[row])));
        front.map(move |row| trace * designs + row)
    });
    fronts.collect()
}

fn open(paths: &[PathBuf]) -> Result<Vec<Trace>> {
    paths.iter().map(|path| Trace::file(path)).collect()
}

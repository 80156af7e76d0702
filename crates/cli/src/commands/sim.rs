//! `hksim sim`: one design on one trace.

pub mod view;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use hksim_sim::report::Bracket;
use hksim_sim::tlb::Geometry;
use hksim_sim::{Setup, SimReport};

use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs::Trace;
use crate::output::OutputArgs;
use crate::runs::{BRACKET, setup, simulate_all};

/// Arguments of `sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to simulate
    #[arg(value_name = "TRACE.hkt")]
    trace: PathBuf,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Model the data TLB of a core: its reach, and its misses where the trace has every access
    #[arg(long, value_name = "CORE", value_parser = parse_core, help = tlb_help())]
    tlb: Option<&'static Geometry>,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_core(name: &str) -> Result<&'static Geometry, String> {
    Geometry::named(name).ok_or_else(|| format!("cores are {}", core_names()))
}

fn core_names() -> String {
    Geometry::all().iter().map(|core| core.name).collect::<Vec<_>>().join(", ")
}

fn tlb_help() -> String {
    format!("Model the data TLB of a core: reach, and misses where the trace has every access [{}]", core_names())
}

/// Simulates; where touches are unknown and were not named, under every assumption about them.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    let choice = args.policy.choice()?;
    let trace = Trace::file(&args.trace)?;
    let headline = Setup { tlb: args.tlb, ..setup(&choice, &trace, BaseKernel::AsItComes)? };
    let is_assumed = choice.touch.is_none() && headline.touch != hksim_drive::TouchRule::Recorded;
    let others = BRACKET.into_iter().filter(|&rule| is_assumed && rule != headline.touch);
    let setups =
        std::iter::once(headline.clone()).chain(others.map(|touch| Setup { touch, tlb: None, ..headline.clone() }));
    let rows = simulate_all(&[(trace, setups.collect())])?.rows;
    let report = with_bracket(rows).ok_or_else(|| anyhow!("no result"))?;
    args.output.emit(&report, &[&report], || view::table(&report, &choice))
}

/// The first row, told the figures of all of them where there are more.
fn with_bracket(rows: Vec<SimReport>) -> Option<SimReport> {
    let words = rows.iter().map(|row| (row.touch.rule.word().to_string(), Bracket::from(row)));
    let bracket = if rows.len() > 1 { words.collect() } else { Default::default() };
    let headline = rows.into_iter().next()?;
    Some(SimReport { bracket, ..headline })
}

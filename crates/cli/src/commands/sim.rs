//! `hksim sim`: one design on one trace.

pub mod view;

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use hksim_sim::report::Bracket;
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
    #[command(flatten)]
    output: OutputArgs,
}

/// Simulates; where touches are unknown and were not named, under every assumption about them.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args) -> Result<()> {
    let choice = args.policy.choice()?;
    let trace = Trace::file(&args.trace)?;
    let headline = setup(&choice, &trace, BaseKernel::AsItComes)?;
    let is_assumed = choice.touch.is_none() && headline.touch != hksim_drive::TouchRule::Recorded;
    let others = BRACKET.into_iter().filter(|&rule| is_assumed && rule != headline.touch);
    let setups = std::iter::once(headline.clone()).chain(others.map(|touch| Setup { touch, ..headline.clone() }));
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

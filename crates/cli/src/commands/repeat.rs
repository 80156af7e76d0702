//! `hksim repeat`: makes the predictions of a bundle again, and compares them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::bundle::repeat::{Outcome, Repeated, repeat};
use crate::output::stamp::Stamp;
use crate::output::{OutputArgs, units};

/// Arguments of `repeat`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim bundle sweep.json -o study\n  hksim repeat study")]
pub struct Args {
    /// Repeat the predictions of this bundle
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// The outcome for a bundle.
#[derive(Serialize)]
struct Outcomes {
    #[serde(flatten)]
    stamp: Stamp,
    equal: usize,
    different: usize,
    skipped: usize,
    predictions: Vec<Repeated>,
}

/// Repeats the predictions. The exit code is 1 if one differs.
///
/// # Errors
/// The folder is not a bundle of this version, or is damaged.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[])?;
    let predictions = repeat(&args.folder)?;
    let count = |wanted: fn(&Outcome) -> bool| predictions.iter().filter(|row| wanted(&row.outcome)).count();
    let outcomes = Outcomes {
        stamp: Stamp::HERE,
        equal: count(|outcome| *outcome == Outcome::Equal),
        different: count(|outcome| matches!(outcome, Outcome::Differs { .. })),
        skipped: count(|outcome| matches!(outcome, Outcome::Skipped { .. })),
        predictions,
    };
    args.output.emit(&outcomes, &outcomes.predictions, || table(&outcomes))?;
    Ok(if outcomes.different == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn table(outcomes: &Outcomes) -> String {
    let mut text = String::new();
    for row in &outcomes.predictions {
        match &row.outcome {
            Outcome::Equal => (),
            Outcome::Differs { field, bundled, repeated } => {
                text += &format!("{} {}: {field} is {repeated} instead of {bundled}\n", row.result, row.place);
            }
            Outcome::Skipped { reason } => text += &format!("skipped: {} {}: {reason}\n", row.result, row.place),
        }
    }
    let all = units::of(outcomes.predictions.len() as u64, "prediction");
    let count = |count: usize| units::count(count as u64);
    let [equal, different, skipped] = [outcomes.equal, outcomes.different, outcomes.skipped].map(count);
    text + &format!("{all}: {equal} equal in every figure, {different} different, {skipped} skipped\n")
}

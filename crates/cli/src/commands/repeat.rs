//! `hksim repeat`: makes the results of a bundle again, and compares them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::bundle::repeat::repeat;
use crate::output::{OutputArgs, units};
use hksim_results::Stamp;
use hksim_results::bundle::repeated::{Outcome, Outcomes, RepeatedResult, WHOLE};

/// Arguments of `repeat`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim bundle sweep.json -o study\n  hksim repeat study")]
pub struct Args {
    /// Make the results of this bundle again
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// A part as a row of a CSV table.
#[derive(Serialize)]
struct Row<'a> {
    result: &'a str,
    place: &'a str,
    outcome: &'a Outcome,
}

/// Repeats the results. The exit code is 1 if one differs, or if a file of the bundle changed.
///
/// # Errors
/// The folder is not a bundle of this version, or is damaged.
pub fn run(args: &Args) -> Result<ExitCode> {
    args.output.check(&[], &[])?;
    let repeated = repeat(&args.folder)?;
    let [mut equal, mut different, mut skipped] = [0; 3];
    for result in &repeated.results {
        let has = |wanted: fn(&Outcome) -> bool| result.parts.iter().any(|part| wanted(&part.outcome));
        if has(|outcome| matches!(outcome, Outcome::Differs { .. })) {
            different += 1;
        } else if has(|outcome| *outcome == Outcome::Equal) {
            equal += 1;
        } else {
            skipped += 1;
        }
    }
    let (results, changed_files) = (repeated.results, repeated.changed_files);
    let outcomes = Outcomes { stamp: Stamp::here(), equal, different, skipped, changed_files, results };
    let parts = outcomes.results.iter().flat_map(|one| one.parts.iter().map(move |part| (one, part)));
    let rows = parts.map(|(one, part)| Row { result: &one.result, place: &part.place, outcome: &part.outcome });
    args.output.emit(&outcomes, &rows.collect::<Vec<_>>(), || table(&outcomes))?;
    let is_same = outcomes.different == 0 && outcomes.changed_files.is_empty();
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn table(outcomes: &Outcomes) -> String {
    let mut text = String::new();
    for file in &outcomes.changed_files {
        text += &format!("changed since the bundle was written: {file}\n");
    }
    for RepeatedResult { result, parts, not_compared } in &outcomes.results {
        let is_whole = parts.iter().all(|part| part.place == WHOLE);
        let equal = parts.iter().filter(|part| part.outcome == Outcome::Equal).count();
        if is_whole && equal > 0 {
            text += &format!("{result}: equal in every figure\n");
        } else if !is_whole {
            let all = units::of(parts.len() as u64, "prediction");
            text += &format!(
                "{result}: {all}, {} equal; not compared: {}\n",
                units::count(equal as u64),
                not_compared.join(", ")
            );
        }
        for part in parts {
            match &part.outcome {
                Outcome::Equal => (),
                Outcome::Differs { field, bundled, repeated } => {
                    text += &format!("{result}: {}: {field} is {repeated} instead of {bundled}\n", part.place);
                }
                Outcome::Skipped { reason } => text += &format!("{result}: {}: skipped: {reason}\n", part.place),
            }
        }
    }
    let all = units::of(outcomes.results.len() as u64, "result");
    let count = |count: usize| units::count(count as u64);
    let [equal, different, skipped] = [outcomes.equal, outcomes.different, outcomes.skipped].map(count);
    text + &format!("{all}: {equal} equal, {different} different, {skipped} skipped\n")
}

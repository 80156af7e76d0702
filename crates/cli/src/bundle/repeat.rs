//! Makes the results of a bundle again, and compares them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use hksim_sim::addresses::AddressSource;
use hksim_sim::report::TraceLabel;
use hksim_sim::{SimConfig, SimReport};
use serde_json::Value;

use super::origin::Origin;
use crate::command_line::Argument;
use crate::inputs;
use crate::read_result::read_result;
use crate::runs::{simulate_all, with_bracket};
use hksim_explore::inputs::Trace;
use hksim_results::bundle::repeated::{
    OF_A_RUN, Outcome, Part, RepeatedResult, WHOLE, beside_predictions, compare, difference, rename, setups,
};
use hksim_results::bundle::{Manifest, inside};
use hksim_results::predictions::{self, Prediction};

/// A bundle that was made again.
#[derive(Debug)]
pub struct Repeated {
    pub results: Vec<RepeatedResult>,
    /// Files that are missing, or not as they were when the bundle was written.
    pub changed_files: Vec<String>,
}

/// Repeats all results of a bundle, in order.
///
/// # Errors
/// The folder is no bundle, is damaged, or is of another version.
pub fn repeat(folder: &Path) -> Result<Repeated> {
    let manifest = Manifest::read(folder)?;
    let changed_files = manifest.changed(folder);
    let mut results = Vec::new();
    for file in &manifest.results {
        let path = inside(folder, &file.file)?;
        let name = path.display().to_string();
        let result = read_result(&path)?;
        let predictions = predictions::of(&result).with_context(|| name.clone())?;
        if predictions.len() != file.predictions {
            bail!("{name}: has {} predictions instead of {}", predictions.len(), file.predictions);
        }
        let (parts, other) = match Origin::of(&name, &result)? {
            Origin::Command { name, arguments } => {
                let again = again(folder, &manifest, &name, &arguments)?;
                let outcome = difference("", &result, &again).unwrap_or(Outcome::Equal);
                (vec![Part { place: WHOLE.into(), outcome }], Vec::new())
            }
            Origin::Measured { reason, .. } => {
                let outcome = Outcome::Skipped { reason: reason.to_string() };
                (vec![Part { place: WHOLE.into(), outcome }], Vec::new())
            }
            Origin::Predictions => {
                let outcomes = outcomes(folder, &manifest, &predictions)?;
                let pairs = predictions.iter().zip(outcomes);
                let parts = pairs.map(|(one, outcome)| Part { place: one.place.clone(), outcome }).collect();
                (parts, beside_predictions(&result, &predictions)?)
            }
        };
        let not_compared = OF_A_RUN.iter().map(ToString::to_string).chain(other).collect();
        results.push(RepeatedResult { result: file.file.clone(), parts, not_compared });
    }
    Ok(Repeated { results, changed_files })
}

/// Runs a command on the inputs in the bundle.
fn again(folder: &Path, manifest: &Manifest, name: &str, arguments: &[Argument]) -> Result<Value> {
    let mut words: Vec<String> = vec![name.into()];
    let mut renamed: Vec<(String, String)> = Vec::new();
    for argument in arguments {
        let Some((last, before)) = argument.words.split_last() else { continue };
        words.extend(before.iter().cloned());
        if argument.is_file {
            let path = manifest.input(folder, last, None)?.display().to_string();
            words.push(path.clone());
            renamed.push((path, last.clone()));
        } else {
            words.push(last.clone());
        }
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(&words).args(["--format", "json"]).stdin(Stdio::null());
    let ran = command.output().with_context(|| format!("hksim {name}: cannot run"))?;
    let why = || anyhow!("hksim {}: {}", words.join(" "), String::from_utf8_lossy(&ran.stderr).trim());
    let mut result: Value = serde_json::from_slice(&ran.stdout).map_err(|_| why())?;
    // The longest first: one path may begin another.
    renamed.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    rename(&mut result, &renamed);
    Ok(result)
}

/// The predictions of each trace are simulated together.
fn outcomes(folder: &Path, manifest: &Manifest, predictions: &[Prediction<'_>]) -> Result<Vec<Outcome>> {
    let mut outcomes: Vec<Option<Outcome>> = predictions.iter().map(|_| None).collect();
    while let Some(first) = outcomes.iter().position(Option::is_none) {
        let label = &predictions[first].report.trace;
        let same: Vec<usize> =
            (first..predictions.len()).filter(|&at| predictions[at].report.trace == *label).collect();
        let trace = open(folder, manifest, label)?;
        let (given, modelled): (Vec<usize>, Vec<usize>) =
            same.into_iter().partition(|&at| has_given_addresses(&predictions[at].report));
        for at in given {
            let reason = "made with the addresses that a replay's kernel returned".to_string();
            outcomes[at] = Some(Outcome::Skipped { reason });
        }
        let setups: Vec<Vec<SimConfig>> = modelled.iter().map(|&at| setups(&predictions[at].report)).collect();
        let mut reports = simulate_all(&[(trace, setups.concat())])?.into_iter();
        for (at, setups) in modelled.into_iter().zip(&setups) {
            let again = with_bracket(reports.by_ref().take(setups.len()).collect()).context("no result")?;
            outcomes[at] = Some(compare(predictions[at].fields, &again)?);
        }
    }
    Ok(outcomes.into_iter().flatten().collect())
}

fn has_given_addresses(report: &SimReport) -> bool {
    report.addresses.is_some_and(|label| label.source == AddressSource::Given)
}

/// The trace of a prediction: in the bundle, or a built-in workload.
fn open(folder: &Path, manifest: &Manifest, label: &TraceLabel) -> Result<Trace> {
    let Some(name) = &label.file else {
        let known = Trace::built_in()?.into_iter().find(|trace| trace.header.origin == label.origin);
        return known.context("a result has a generated trace that this hksim does not generate");
    };
    let checksum = label.checksum.as_deref().unwrap_or_default();
    let path = manifest.input(folder, name, Some(checksum))?;
    inputs::file(&path)
}

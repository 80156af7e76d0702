//! Makes the predictions of a bundle again, and compares them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use hksim_engine::ForkWindow;
use hksim_sim::addresses::AddressSource;
use hksim_sim::report::TraceLabel;
use hksim_sim::{Addresses, SimConfig, SimReport};
use serde::Serialize;
use serde_json::Value;

use super::predictions::{self, Prediction};
use super::{Manifest, inputs};
use crate::commands::read_result;
use crate::inputs::Trace;
use crate::runs::{bracketed, simulate_all, with_bracket};

/// A prediction that was made again.
#[derive(Debug, Serialize)]
pub struct Repeated {
    /// The file of its result.
    pub result: String,
    /// Its place in the result.
    pub place: String,
    pub outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Equal,
    /// The first field that differs, with the value in the bundle and the new one.
    Differs {
        field: String,
        bundled: String,
        repeated: String,
    },
    /// It cannot be made again.
    Skipped {
        reason: String,
    },
}

/// Repeats all predictions of a bundle, in order.
///
/// # Errors
/// The folder is no bundle, is damaged, or is of another version.
pub fn repeat(folder: &Path) -> Result<Vec<Repeated>> {
    let manifest = Manifest::read(folder)?;
    let mut repeated = Vec::new();
    for file in &manifest.results {
        let path = folder.join(&file.file);
        let result = read_result(&path)?;
        let predictions = predictions::of(&result).with_context(|| path.display().to_string())?;
        if predictions.len() != file.predictions {
            bail!("{}: has {} predictions instead of {}", path.display(), predictions.len(), file.predictions);
        }
        let outcomes = outcomes(folder, &manifest, &predictions)?;
        let rows = predictions.iter().zip(outcomes);
        repeated.extend(rows.map(|(prediction, outcome)| Repeated {
            result: file.file.clone(),
            place: prediction.place.clone(),
            outcome,
        }));
    }
    Ok(repeated)
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
    let input = manifest.inputs.iter().find(|input| input.name == *name && input.checksum == checksum);
    let path = folder.join(&input.with_context(|| format!("{name}: the bundle does not have this trace"))?.file);
    let here = inputs::checksum_of(&path)?;
    if here != checksum {
        bail!("{}: has checksum {here} instead of {checksum}: the file is damaged", path.display());
    }
    Trace::file(&path)
}

/// The simulations from which a prediction was made.
fn setups(report: &SimReport) -> Vec<SimConfig> {
    let fork = |fork: &hksim_sim::forks::ForkReport| ForkWindow {
        from_event: fork.from_event,
        until_event: fork.until_event.unwrap_or(u64::MAX),
    };
    let setup = SimConfig {
        policy: report.policy,
        touch: report.touch.rule,
        kernel: report.kernel.clone(),
        memory_policy: report.memory_policy.rule,
        tlb: report.tlb.as_ref().map(|tlb| tlb.core),
        addresses: Addresses::default(),
        forks: report.forks.iter().map(fork).collect(),
        file: report.trace.file.clone(),
    };
    if report.by_touch_rule.is_empty() { vec![setup] } else { bracketed(&setup) }
}

/// Compares every field, except the time that the simulation took.
fn compare(bundled: &Value, again: &SimReport) -> Result<Outcome> {
    let again = serde_json::to_value(again).context("a prediction as JSON")?;
    let fields = again.as_object().into_iter().flatten().filter(|(name, _)| *name != "elapsed_s");
    let mut differences = fields.filter_map(|(name, value)| difference(name, &bundled[name], value));
    Ok(differences.next().unwrap_or(Outcome::Equal))
}

/// The first value that differs.
fn difference(field: &str, bundled: &Value, again: &Value) -> Option<Outcome> {
    match (bundled, again) {
        (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
            other.iter().find_map(|(name, value)| difference(&format!("{field}.{name}"), &bundled[name], value))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.into_iter().find_map(|(at, (one, other))| difference(&format!("{field}[{at}]"), one, other))
        }
        _ if bundled == again => None,
        _ => Some(Outcome::Differs { field: field.into(), bundled: bundled.to_string(), repeated: again.to_string() }),
    }
}

//! Makes the results of a bundle again, and compares them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use hksim_engine::ForkWindow;
use hksim_sim::addresses::AddressSource;
use hksim_sim::report::TraceLabel;
use hksim_sim::{Addresses, SimConfig, SimReport};
use serde::Serialize;
use serde_json::Value;

use super::origin::Origin;
use super::{Manifest, inside};
use crate::command_line::Argument;
use crate::inputs;
use crate::read_result::read_result;
use crate::runs::{bracketed, simulate_all, with_bracket};
use hksim_explore::inputs::Trace;
use hksim_results::predictions::{self, Prediction};

/// The place of a result as a whole.
pub const WHOLE: &str = "the result";

/// Fields that belong to a run and not to a result.
const OF_A_RUN: [&str; 2] = ["elapsed_s", "environment"];

/// A bundle that was made again.
#[derive(Debug)]
pub struct Repeated {
    pub results: Vec<RepeatedResult>,
    /// Files that are missing, or not as they were when the bundle was written.
    pub changed_files: Vec<String>,
}

/// A result that was made again.
#[derive(Debug, Serialize)]
pub struct RepeatedResult {
    /// Its file.
    pub result: String,
    /// What was compared: `the result` as a whole, or its predictions.
    pub parts: Vec<Part>,
    /// Fields that were not compared, at every depth.
    pub not_compared: Vec<String>,
}

/// A part of a result.
#[derive(Debug, Serialize)]
pub struct Part {
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

/// The fields of a result and of its rows that are not those of a prediction.
fn beside_predictions(result: &Value, predictions: &[Prediction<'_>]) -> Result<Vec<String>> {
    let names = |value: &Value| value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let mut fields: Vec<String> = names(result);
    if let [one] = predictions
        && result.get("rows").is_none()
    {
        let compared = serde_json::to_value(&one.report).context("a prediction as JSON")?;
        fields.retain(|name| compared.get(name).is_none());
        return Ok(fields);
    }
    fields.retain(|name| name != "rows");
    if result["rows"][0].get("predicted").is_some() {
        let of_row: Vec<String> = names(&result["rows"][0]);
        fields.extend(of_row.into_iter().filter(|name| name != "predicted").map(|name| format!("rows.{name}")));
    }
    Ok(fields)
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

/// Gives the inputs in all texts of a result the names that they had.
fn rename(value: &mut Value, renamed: &[(String, String)]) {
    match value {
        Value::String(text) => {
            for (path, name) in renamed {
                *text = text.replace(path, name);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, renamed)),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, renamed)),
        _ => (),
    }
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

/// Compares every field of a prediction.
fn compare(bundled: &Value, again: &SimReport) -> Result<Outcome> {
    let again = serde_json::to_value(again).context("a prediction as JSON")?;
    let fields = again.as_object().into_iter().flatten();
    let mut differences = fields.filter_map(|(name, value)| difference(name, &bundled[name], value));
    Ok(differences.next().unwrap_or(Outcome::Equal))
}

/// The first value that differs, except those of a run.
fn difference(field: &str, bundled: &Value, again: &Value) -> Option<Outcome> {
    match (bundled, again) {
        _ if OF_A_RUN.contains(&field.rsplit('.').next().unwrap_or(field)) => None,
        (Value::Object(one), Value::Object(other)) => {
            let dot = if field.is_empty() { "" } else { "." };
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            let of = |fields: &serde_json::Map<String, Value>, name| fields.get(name).cloned().unwrap_or(Value::Null);
            names
                .into_iter()
                .find_map(|name| difference(&format!("{field}{dot}{name}"), &of(one, name), &of(other, name)))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.into_iter().find_map(|(at, (one, other))| difference(&format!("{field}[{at}]"), one, other))
        }
        _ if bundled == again => None,
        _ => Some(Outcome::Differs { field: field.into(), bundled: short(bundled), repeated: short(again) }),
    }
}

/// A value as text, cut if it is long.
fn short(value: &Value) -> String {
    const CHARACTERS: usize = 200;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

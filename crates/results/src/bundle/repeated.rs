//! Compares results with those that were made again.

use hksim_engine::ForkWindow;
use hksim_explore::runs::bracketed;
use hksim_sim::{Addresses, Counted, SimConfig, SimReport};
use serde::Serialize;
use serde_json::Value;

use crate::predictions::Prediction;
use crate::stamp::Stamp;

/// The place of a result as a whole.
pub const WHOLE: &str = "the result";

/// Fields that belong to a run and not to a result.
pub const OF_A_RUN: [&str; 2] = ["elapsed_s", "environment"];

/// A result that was made again.
#[derive(Clone, Debug, Serialize)]
pub struct RepeatedResult {
    /// Its file.
    pub result: String,
    /// What was compared: `the result` as a whole, or its predictions.
    pub parts: Vec<Part>,
    /// Fields that were not compared, at every depth.
    pub not_compared: Vec<String>,
}

/// A part of a result.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its place in the result.
    pub place: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is equal in every figure.
    Equal,
    /// The first field that differs, with the value in the bundle and the new one.
    Differs {
        /// The field.
        field: String,
        /// Its value in the bundle.
        bundled: String,
        /// Its new value.
        repeated: String,
    },
    /// It cannot be made again.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// The fields of a result and of its rows that are not those of a prediction.
///
/// # Errors
/// A prediction has no JSON form.
pub fn beside_predictions(result: &Value, predictions: &[Prediction<'_>]) -> serde_json::Result<Vec<String>> {
    let names = |value: &Value| value.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let mut fields: Vec<String> = names(result);
    if let [one] = predictions
        && result.get("rows").is_none()
    {
        let compared = serde_json::to_value(&one.report)?;
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

/// Gives the inputs in all texts of a result the names that they had.
pub fn rename(value: &mut Value, renamed: &[(String, String)]) {
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

/// The simulations from which a prediction was made.
pub fn setups(report: &SimReport) -> Vec<SimConfig> {
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
        counted: match (&report.paths, &report.lines) {
            (_, Some(_)) => Counted::Time,
            (Some(_), None) => Counted::Paths,
            (None, None) => Counted::Pages,
        },
        file: report.trace.file.clone(),
    };
    if report.by_touch_rule.is_empty() { vec![setup] } else { bracketed(&setup) }
}

/// Compares every field of a prediction.
///
/// # Errors
/// The prediction has no JSON form.
pub fn compare(bundled: &Value, again: &SimReport) -> serde_json::Result<Outcome> {
    let again = serde_json::to_value(again)?;
    let fields = again.as_object().into_iter().flatten();
    let mut differences = fields.filter_map(|(name, value)| difference(name, &bundled[name], value));
    Ok(differences.next().unwrap_or(Outcome::Equal))
}

/// The first value that differs, except those of a run.
pub fn difference(field: &str, bundled: &Value, again: &Value) -> Option<Outcome> {
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

/// The outcome for a bundle. The counts are of results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcomes {
    /// The schema, and the version that wrote it.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Equal in every figure.
    pub equal: usize,
    /// With a figure that differs.
    pub different: usize,
    /// That cannot be made again.
    pub skipped: usize,
    /// Files that are missing, or not as they were when the bundle was written.
    pub changed_files: Vec<String>,
    /// Each result.
    pub results: Vec<RepeatedResult>,
}

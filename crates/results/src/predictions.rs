//! Predictions and measurements in a JSON result of any command.

use hksim_sim::SimReport;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ResultError;

/// Fields that only predictions have, and those that only measurements have.
const PREDICTION: [&str; 4] = ["policy", "kernel", "placement_digest", "timeline"];
const MEASUREMENT: [&str; 2] = ["installs", "ops_per_s"];
/// Fields that only an explained replay has.
const EXPLAINED_REPLAY: [&str; 2] = ["installs_total", "faults_of_other_threads"];
/// Fields that only a measured row of a validation of memory has.
const MEMORY_MEASUREMENT: [&str; 3] = ["setting", "verdict", "measured"];
/// Fields that only the inspection of a process has.
const INSPECTION: [&str; 3] = ["regions", "remedies", "map"];

/// A prediction in a result.
pub struct Prediction<'a> {
    /// Its place in the result: `rows[3]`; `the prediction` if it is one prediction.
    pub place: String,
    /// The prediction.
    pub report: SimReport,
    /// Its fields.
    pub fields: &'a Value,
}

/// The predictions of a result, in order.
///
/// # Errors
/// A prediction is damaged, or another version of hksim made it.
pub fn of(result: &Value) -> Result<Vec<Prediction<'_>>, ResultError> {
    let prediction = |(place, fields): (String, _)| -> Result<Prediction<'_>, ResultError> {
        let damaged = |source| ResultError::Part { place: place.clone(), what: "prediction", source };
        let report = SimReport::deserialize(fields).map_err(damaged)?;
        Ok(Prediction { place, report, fields })
    };
    with_fields(result, &PREDICTION).into_iter().map(prediction).collect()
}

/// Whether the rows of a memory result are replays on allocators: `sweep --allocators` and `validate --on`.
pub fn is_of_replays(result: &Value) -> bool {
    result["rows"].get(0).is_some_and(|row| row["allocator"].is_object())
}

/// The number of measurements in a result: replays, explained replays, measured rows of comparisons, trials and
/// validations of memory, and inspections.
pub fn measurements(result: &Value) -> usize {
    let is_measured = |row: &Value| row["outcome"] == "measured";
    let rows = with_fields(result, &["outcome"]).into_iter().filter(|(_, row)| is_measured(row));
    let replays = [&MEASUREMENT[..], &EXPLAINED_REPLAY, &MEMORY_MEASUREMENT];
    let replays = replays.map(|fields| with_fields(result, fields).len());
    replays.into_iter().sum::<usize>() + rows.count() + with_fields(result, &INSPECTION).len()
}

/// The objects that have all these fields, with their places.
fn with_fields<'a>(result: &'a Value, names: &[&str]) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), result)];
    while let Some((place, value)) = open.pop() {
        match value {
            Value::Object(fields) if names.iter().all(|name| fields.contains_key(*name)) => {
                found.push((if place.is_empty() { "the prediction".into() } else { place }, value));
            }
            Value::Object(fields) => {
                let dot = if place.is_empty() { "" } else { "." };
                open.extend(fields.iter().rev().map(|(name, field)| (format!("{place}{dot}{name}"), field)));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate().rev();
                open.extend(items.map(|(at, item)| (format!("{place}[{at}]"), item)));
            }
            _ => (),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_at_every_depth_in_order() {
        let one = serde_json::json!({ "installs": 1, "ops_per_s": 2.0 });
        let result =
            serde_json::json!({ "rows": [{ "measured": one }, { "predicted": 7, "measured": one }], "b": one });
        let places: Vec<String> = with_fields(&result, &MEASUREMENT).into_iter().map(|(place, _)| place).collect();
        // serde_json sorts the fields of an object by name.
        assert_eq!(places, ["b", "rows[0].measured", "rows[1].measured"]);
        assert_eq!(with_fields(&one, &MEASUREMENT)[0].0, "the prediction");
        assert!(with_fields(&result, &PREDICTION).is_empty());
    }
}

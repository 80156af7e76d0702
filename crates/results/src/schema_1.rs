//! Reads predictions of schema 1 (hksim 0.1) by renaming their fields and words to those of schema 2.

use std::path::Path;

use serde_json::{Map, Value};

/// The names that changed, one per line: result, old path, new name. `path=word` renames a value of a field. `path[]`
/// is a list that became an object; its new name lists the keys of the items, and `-` drops an item. Paths of
/// predictions start at the row and skip list indices.
const NAMES: &str = include_str!("schema_1.tsv");

/// The group of [`NAMES`] for rows of `sim` and `sweep`, and `predicted` in `validate`.
const PREDICTION: &str = "prediction";

/// Converts the predictions in a result to the current names. Returns a note if there are any of schema 1.
pub fn upgrade(file: &Path, result: &mut Value) -> Option<String> {
    let predictions: Vec<&mut Value> = match result.get_mut("rows").is_some_and(|rows| rows.is_array()) {
        true => result["rows"].as_array_mut().into_iter().flatten().map(prediction).collect(),
        false => vec![prediction(result)],
    };
    let mut version = None;
    for prediction in predictions {
        if prediction.get("schema").and_then(Value::as_u64) == Some(1) {
            version = prediction.get("hksim_version").and_then(Value::as_str).map(str::to_string).or(version);
            rename(prediction, "");
        }
    }
    version.map(|version| format!("{}: schema 1 (hksim {version}): read with old names", file.display()))
}

/// The prediction in a row of `validate`; other rows are predictions.
fn prediction(row: &mut Value) -> &mut Value {
    if row.get("predicted").is_some() { &mut row["predicted"] } else { row }
}

/// The new name for an old path of a prediction.
fn new_name(path: &str) -> Option<&'static str> {
    let fields = |line: &'static str| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let mut lines = NAMES.lines().filter_map(fields);
    lines.find(|&(result, old, _)| result == PREDICTION && old == path).map(|(_, _, new)| new)
}

fn rename(value: &mut Value, path: &str) {
    match value {
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (name, mut field) in old {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                rename(&mut field, &path);
                fields.insert(new_name(&path).map_or(name, str::to_string), field);
            }
        }
        Value::Array(items) => match new_name(&format!("{path}[]")) {
            Some(keys) => *value = Value::Object(keyed(keys, items)),
            None => items.iter_mut().for_each(|item| rename(item, path)),
        },
        Value::String(word) => {
            if let Some(new) = new_name(&format!("{path}={word}")) {
                *word = new.to_string();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

fn keyed(keys: &str, items: &mut Vec<Value>) -> Map<String, Value> {
    let named = keys.split(',').zip(items.drain(..)).filter(|(key, _)| *key != "-");
    named.map(|(key, item)| (key.to_string(), item)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_words_and_lists_of_schema_1_are_converted() {
        let sizes = ["never", "never", "never", "never", "always", "never", "never", "never", "never", "inherit"];
        let row = json!({
            "schema": 1, "hksim_version": "0.1.0", "splits": 3, "failed": 0,
            "kernel": {"thp": {"sizes": sizes}, "rules": {"map_alignment": "whole_blocks", "collapse": "any_table"}},
            "forks": [{"copies": 2}],
        });
        let expected = json!({
            "schema": 1, "hksim_version": "0.1.0", "pmd_splits": 3, "requests_failed": 0,
            "kernel": {
                "thp": {"sizes": {
                    "16K": "never", "32K": "never", "64K": "always", "128K": "never", "256K": "never", "512K": "never",
                    "1M": "never", "2M": "inherit",
                }},
                "rules": {"mmap_alignment": "pmd_if_multiple", "collapse": "needs_pte_table"},
            },
            "forks": [{"cow_copies": 2}],
        });
        for mut result in [row.clone(), json!({"rows": [row.clone()]}), json!({"rows": [{"predicted": row}]})] {
            upgrade(Path::new("old.json"), &mut result);
            let rows = result.get("rows").map_or(&result, |rows| &rows[0]);
            assert_eq!(rows.get("predicted").unwrap_or(rows), &expected);
        }
    }

    #[test]
    fn results_of_schema_2_stay() {
        let row = json!({"schema": 2, "hksim_version": "0.2.0", "failed": 1});
        let mut read = row.clone();
        upgrade(Path::new("new.json"), &mut read);
        assert_eq!(read, row);
    }
}

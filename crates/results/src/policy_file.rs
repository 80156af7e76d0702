//! Policies in files: policy fields as TOML or JSON, or a row of a JSON result, also by its number: `result.json#3`.

use std::path::{Path, PathBuf};

use hksim_engine::TouchRule;
use hksim_explore::flags::RunConfig;
use hksim_explore::flags::row::Inputs;
use hksim_policy::Policy;
use hksim_text::units;
use hksim_trace::named_file;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ResultError;
use crate::stamp::refuse_other_schema;

/// Reads a run configuration. Policy fields replace those of the preset; a row of a result replaces the whole
/// configuration. `FILE#N` is row N of a result with rows, from 0 (in a shard: row N of the whole sweep); `FILE#winner` is the winner of advice.
///
/// # Errors
/// The file is missing, has fields that no policy has, or is a result with several rows and none is named.
pub fn read(path: &Path, preset: &Policy) -> Result<RunConfig, ResultError> {
    let (file, row) = split_row(path);
    // A policy is read several times, which a pipe cannot be.
    let cannot = || format!("{}: cannot read the policy, which must be in a file", file.display());
    let text = named_file::read_regular_text(&file).map_err(|why| ResultError::file_by(cannot(), why))?;
    match (text.trim_start().starts_with('{'), row) {
        (true, row) => from_json(&file, &text, row.as_deref(), preset),
        (false, None) => from_toml(&file, &text, preset),
        (false, Some(row)) => Err(ResultError::file(format!("{}#{row}: only a JSON result has rows", file.display()))),
    }
}

/// A path and the row after its last `#`. A file whose name has a `#` is read as a whole.
fn split_row(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_str().filter(|_| !path.exists());
    match text.and_then(|text| text.rsplit_once('#')) {
        Some((file, row)) => (PathBuf::from(file), Some(row.to_string())),
        None => (path.to_path_buf(), None),
    }
}

fn from_toml(path: &Path, text: &str, preset: &Policy) -> Result<RunConfig, ResultError> {
    let one_line = |why: toml::de::Error| {
        let line = why.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        let path = path.display();
        let why = why.message().replace('\n', ", ");
        ResultError::file(format!("{path}:{line}: {why}; fields are those of `policy` in a JSON result"))
    };
    // Parse it alone first, so that errors have a line number, then merge it into the preset.
    let _alone: Policy = toml::from_str(text).map_err(one_line)?;
    let fields: toml::Table = toml::from_str(text).map_err(one_line)?;
    let mut merged =
        toml::Table::try_from(preset).map_err(|why| ResultError::file_by("a preset as TOML".into(), why))?;
    merged.extend(fields);
    let design: Policy = merged.try_into().map_err(|why: toml::de::Error| {
        ResultError::file_by(format!("{}: cannot read the policy", path.display()), why)
    })?;
    Ok(RunConfig::of(design))
}

/// The row of a result that `name` names: a number, or `winner`.
fn named_row<'a>(file: &str, result: &'a Value, name: &str) -> Result<&'a Value, ResultError> {
    if name == "winner" {
        let winner = result.get("winner").filter(|winner| winner.is_object());
        return winner.ok_or_else(|| {
            ResultError::file(format!("{file}#winner: the result has no winner; `hksim advise` writes one"))
        });
    }
    let number: usize =
        name.parse().map_err(|_| ResultError::file(format!("{file}#{name}: expected a row number, or `winner`")))?;
    let rows = result.get("rows").or_else(|| result.get("front")).and_then(Value::as_array);
    // A result of one design has one row: itself.
    if rows.is_none() && number == 0 && result.get("policy").is_some() {
        return Ok(result);
    }
    let rows = rows.ok_or_else(|| ResultError::file(format!("{file}#{name}: the result has no rows")))?;
    if result.get("shard").is_some() {
        return row_of_shard(rows, number).ok_or_else(|| {
            ResultError::file(format!(
                "{file}#{name}: this shard does not have row {name} of the sweep; `hksim merge` writes all rows"
            ))
        });
    }
    let rows_count = rows.len();
    rows.get(number)
        .ok_or_else(|| ResultError::file(format!("{file}#{name}: the result has {rows_count} rows, numbered from 0")))
}

/// The row of a shard with this number in the whole sweep.
fn row_of_shard(rows: &[Value], number: usize) -> Option<&Value> {
    rows.iter().find(|row| row.get("row").and_then(Value::as_u64) == Some(number as u64))
}

fn from_json(path: &Path, text: &str, row: Option<&str>, preset: &Policy) -> Result<RunConfig, ResultError> {
    let file = path.display().to_string();
    let cannot = || format!("{file}: cannot read the policy");
    let value: Value = serde_json::from_str(text).map_err(|why| ResultError::file_by(cannot(), why))?;
    refuse_other_schema(path, &value)?;
    let damaged = |why: serde_json::Error| ResultError::file_by(cannot(), why);
    let row = match (row, value.get("rows").and_then(Value::as_array)) {
        (Some(row), _) => named_row(&file, &value, row)?,
        (None, Some(rows)) => {
            let first = rows.first().and_then(|row| row.get("row")).and_then(Value::as_u64).unwrap_or(0);
            return Err(ResultError::file(format!(
                "{file}: has {}; name one of them: {file}#{first}",
                units::of(rows.len() as u64, "row")
            )));
        }
        (None, None) => &value,
    };
    // A row of a validation contains the prediction with its inputs.
    let row = row.get("predicted").unwrap_or(row);
    if row.get("policy").is_some() && row.get("touch").is_none() {
        // A design of advice: its traces decide the rest.
        return Ok(RunConfig::of(Policy::deserialize(&row["policy"]).map_err(damaged)?));
    }
    if row.get("policy").is_some() {
        let config = of_row(row).map_err(damaged)?;
        return config.ok_or_else(|| ResultError::file(format!("{file}: the row has no policy")));
    }
    let fields = row.as_object().cloned().unwrap_or_default();
    let mut merged =
        serde_json::to_value(preset).map_err(|why| ResultError::file_by("a preset as JSON".into(), why))?;
    merged.as_object_mut().into_iter().for_each(|merged| merged.extend(fields.clone()));
    let design = Policy::deserialize(merged);
    let fields = "fields are those of `policy` in a JSON result";
    Ok(RunConfig::of(design.map_err(|why| ResultError::file(format!("{file}: {why}; {fields}")))?))
}

fn of_row(row: &Value) -> serde_json::Result<Option<RunConfig>> {
    let mut config = Inputs::deserialize(row)?.config();
    // `recorded` is the default for a trace that has touches, so each trace decides for itself.
    config.iter_mut().for_each(|config| config.touch = config.touch.filter(|&rule| rule != TouchRule::Recorded));
    Ok(config)
}

//! Policies in files: policy fields as TOML or JSON, or a whole row of a JSON result.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use hksim_engine::TouchRule;
use hksim_policy::Policy;
use serde::Deserialize;
use serde_json::Value;

use super::row::Inputs;
use super::run_config::RunConfig;
use crate::schema_1;

/// Reads a run configuration. Policy fields replace those of the preset; a row of a result replaces the whole
/// configuration.
///
/// # Errors
/// The file is missing, has fields that no policy has, or is a result with several rows.
pub fn read(path: &Path, preset: &Policy) -> Result<RunConfig> {
    let text = fs::read_to_string(path).with_context(|| format!("{}: cannot read the policy", path.display()))?;
    if text.trim_start().starts_with('{') { from_json(path, &text, preset) } else { from_toml(path, &text, preset) }
}

fn from_toml(path: &Path, text: &str, preset: &Policy) -> Result<RunConfig> {
    let one_line = |why: toml::de::Error| {
        let line = why.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        let path = path.display();
        anyhow!("{path}:{line}: {}; fields are those of `policy` in a JSON result", why.message().replace('\n', ", "))
    };
    // Parse it alone first, so that errors have a line number, then merge it into the preset.
    let _alone: Policy = toml::from_str(text).map_err(one_line)?;
    let fields: toml::Table = toml::from_str(text).map_err(one_line)?;
    let mut merged = toml::Table::try_from(preset).context("a preset as TOML")?;
    merged.extend(fields);
    let design: Policy = merged.try_into().with_context(|| format!("{}: cannot read the policy", path.display()))?;
    Ok(RunConfig::of(design))
}

fn from_json(path: &Path, text: &str, preset: &Policy) -> Result<RunConfig> {
    let file = path.display();
    let cannot = || format!("{file}: cannot read the policy");
    let mut value: Value = serde_json::from_str(text).with_context(cannot)?;
    schema_1::upgrade(path, &mut value);
    if let Some(rows) = value.get("rows").and_then(Value::as_array) {
        bail!("{file}: has {} rows; write one row to a separate file: jq '.rows[0]' {file}", rows.len());
    }
    // A row of a validation contains the prediction with its inputs.
    let row = value.get("predicted").unwrap_or(&value);
    if row.get("policy").is_some() {
        return of_row(row).with_context(cannot)?.ok_or_else(|| anyhow!("{file}: the row has no policy"));
    }
    let fields = value.as_object().cloned().unwrap_or_default();
    let mut merged = serde_json::to_value(preset).context("a preset as JSON")?;
    merged.as_object_mut().into_iter().for_each(|merged| merged.extend(fields.clone()));
    let design = Policy::deserialize(merged);
    let fields = "fields are those of `policy` in a JSON result";
    Ok(RunConfig::of(design.map_err(|why| anyhow!("{file}: {why}; {fields}"))?))
}

fn of_row(row: &Value) -> serde_json::Result<Option<RunConfig>> {
    let mut config = Inputs::deserialize(row)?.config();
    // `recorded` is the default for a trace that has touches, so each trace decides for itself.
    config.iter_mut().for_each(|config| config.touch = config.touch.filter(|&rule| rule != TouchRule::Recorded));
    Ok(config)
}

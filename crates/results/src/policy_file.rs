//! Policies in files: settings as TOML or JSON, or a row of a JSON result, also by its number: `result.json#3`.
//!
//! A setting has the name and the words of its flag (`purge-delay = "100ms"`), or the name and the value of its field in
//! results (`purge_delay_ns = 100000000`). [`Flag::field`] is the field of a flag.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hksim_engine::TouchRule;
use hksim_explore::flags::RunConfig;
use hksim_explore::flags::row::Inputs;
use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_text::units;
use hksim_trace::named_file;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use crate::error::ResultError;
use crate::stamp::refuse_other_schema;

/// Reads a run configuration. Settings replace those of the preset; a row of a result replaces the whole
/// configuration. `FILE#N` is row N of a result with rows, from 0 (in a shard: row N of the whole sweep); `FILE#winner` is the winner of advice.
///
/// # Errors
/// The file is missing, has settings that no policy has, or is a result with several rows and none is named.
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

/// What the names in a policy file are.
const NAMES: &str = "settings have the names of flags, or of the fields of `policy` in a JSON result";

fn from_toml(path: &Path, text: &str, preset: &Policy) -> Result<RunConfig, ResultError> {
    let path = path.display();
    let at = |byte: usize| 1 + text[..byte].matches('\n').count();
    let one_line = |why: toml::de::Error| {
        let line = why.span().map_or(1, |span| at(span.start));
        ResultError::file(format!("{path}:{line}: {}; {NAMES}", why.message().replace('\n', ", ")))
    };
    let settings: BTreeMap<Spanned<String>, toml::Value> = toml::from_str(text).map_err(one_line)?;
    let mut settings: Vec<_> = settings.into_iter().collect();
    settings.sort_by_key(|(name, _)| name.span().start);
    let mut given = Given::new(preset);
    for (name, value) in settings {
        let value = serde_json::to_value(value).map_err(|why| ResultError::file_by(format!("{path}"), why))?;
        let line = at(name.span().start);
        given.set(name.get_ref(), &value).map_err(|why| ResultError::file(format!("{path}:{line}: {why}; {NAMES}")))?;
    }
    Ok(RunConfig::of(given.policy))
}

/// A policy to which the settings of a file are applied.
struct Given {
    policy: Policy,
    /// The fields that the file has set.
    fields: BTreeSet<String>,
}

impl Given {
    fn new(preset: &Policy) -> Given {
        Given { policy: *preset, fields: BTreeSet::new() }
    }

    /// Applies a setting: a flag with one of its words, or a field with its value as results have it.
    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let flag = Flag::find(name);
        let field = flag.map_or(name, |flag| flag.field);
        if !self.fields.insert(field.to_string()) {
            return Err(format!("`{field}` is set twice, once as `{name}`"));
        }
        // A field with the name of its flag may have other words, and leaves other fields as they are.
        let by_field = if field == name { self.set_field(field, value) } else { Err(String::new()) };
        match (by_field, flag.zip(flag_word(value))) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some((flag, word))) => flag.set(&mut self.policy, &word).map_err(|why| format!("`{name}`: {why}")),
            (Err(why), None) if field == name => Err(why),
            (Err(_), None) => Err(format!("`{name}`: expected a word or a number")),
        }
    }

    fn set_field(&mut self, field: &str, value: &Value) -> Result<(), String> {
        let mut fields = serde_json::to_value(self.policy).map_err(|why| why.to_string())?;
        fields.as_object_mut().map(|fields| fields.insert(field.to_string(), value.clone()));
        self.policy = Policy::deserialize(fields).map_err(|why| format!("`{field}`: {why}"))?;
        Ok(())
    }
}

/// A value as the word of a flag; `None` for lists and the like.
fn flag_word(value: &Value) -> Option<String> {
    match value {
        Value::String(word) => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(if *is_so { "yes" } else { "no" }.to_string()),
        _ => None,
    }
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
    let mut given = Given::new(preset);
    for (name, value) in row.as_object().into_iter().flatten() {
        given.set(name, value).map_err(|why| ResultError::file(format!("{file}: {why}; {NAMES}")))?;
    }
    Ok(RunConfig::of(given.policy))
}

fn of_row(row: &Value) -> serde_json::Result<Option<RunConfig>> {
    let mut config = Inputs::deserialize(row)?.config();
    // `recorded` is the default for a trace that has touches, so each trace decides for itself.
    config.iter_mut().for_each(|config| config.touch = config.touch.filter(|&rule| rule != TouchRule::Recorded));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use hksim_policy::flags::FLAGS;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_flag_sets_the_field_that_it_names() {
        let fields = |policy: &Policy| serde_json::to_value(policy).expect("JSON");
        let mut named = BTreeSet::from(["huge_page_bytes"]);
        for flag in FLAGS {
            assert!(named.insert(flag.field), "{}", flag.name);
            // A value that is not the default's, if the flag takes it.
            let words = ["1M", "full", "9", "75", "never", "touch", "slab", "free", "7ms", "smoothstep", "yes", "trim"];
            let words = words.into_iter().chain(["1G", "sidecar", "eager", "fifo", "newest", "16"]);
            let changed = |word: &str| {
                let mut policy = Policy::DEFAULT;
                flag.set(&mut policy, word).is_ok().then_some(policy).filter(|policy| *policy != Policy::DEFAULT)
            };
            let (word, policy) = words.filter_map(|word| Some((word, changed(word)?))).next().expect(flag.name);
            let (before, after) = (fields(&Policy::DEFAULT), fields(&policy));
            let differ = after.as_object().expect("fields").iter().filter(|(name, value)| before[*name] != **value);
            assert_eq!(differ.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [flag.field], "{} {word}", flag.name);
            // Both names mean the same in a file.
            for (name, value) in [(flag.name, json!(word)), (flag.field, after[flag.field].clone())] {
                let mut given = Given::new(&Policy::DEFAULT);
                given.set(name, &value).unwrap_or_else(|why| panic!("{name} = {value}: {why}"));
                assert_eq!(given.policy, policy, "{name} = {value}");
                assert!(given.set(flag.field, &after[flag.field]).is_err(), "{name}: set twice");
            }
        }
        let all: BTreeSet<String> =
            fields(&Policy::DEFAULT).as_object().expect("fields").keys().map(String::clone).collect();
        assert_eq!(all, named.into_iter().map(str::to_string).collect());
    }

    #[test]
    fn settings_have_lines_in_messages() {
        let read = |text: &str| from_toml(Path::new("p.toml"), text, &Policy::DEFAULT).map(|config| config.policy);
        let mut expected = Policy::DEFAULT;
        (expected.superslab_bytes, expected.purge_delay_ns, expected.purge_spans) = (1 << 20, 7_000_000, true);
        assert_eq!(
            read("superslab = \"1M\"\npurge-delay = \"7ms\"\npurge_spans = true\n").expect("a policy"),
            expected
        );
        for (text, needle) in [
            ("huge = \"thp\"\n\nslabs = 3\n", "p.toml:3: `slabs`: unknown field"),
            ("slab = \"much\"\n", "p.toml:1: `slab`: expected a size"),
            ("slab = \"64K\"\nslab_bytes = 65536\n", "p.toml:2: `slab_bytes` is set twice"),
        ] {
            let why = read(text).expect_err("an invalid policy").to_string();
            assert!(why.contains(needle), "{why}");
        }
    }
}

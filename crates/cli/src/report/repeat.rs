//! The command that repeats a result, from the inputs that the result states.

use hksim_memory_sim::{Advise, ThpPrctl};
use hksim_policy::Policy;
use serde::Deserialize;
use serde_json::Value;

use super::kind::Kind;
use crate::flags::RunConfig;
use crate::flags::row::{Inputs, of_kernel};
use crate::flags::table::{FLAGS, Flag};
use crate::memory::settings::{advise_word, prctl_word};

/// The command; `None` if a row has no policy, or the rows are no product of lists.
pub fn command(kind: Kind, result: &Value) -> Option<String> {
    let rows = || result["rows"].as_array().into_iter().flatten();
    match kind {
        Kind::Sweep => of_rows(kind, &rows().collect::<Vec<_>>()),
        Kind::Validate => of_rows(kind, &rows().map(|row| &row["predicted"]).collect::<Vec<_>>()),
        Kind::Sim | Kind::Explain => of_rows(kind, &[result]),
        Kind::MemorySim => of_recordings(kind, &[result]),
        Kind::MemorySweep => of_recordings(kind, &rows().collect::<Vec<_>>()),
        Kind::Advise | Kind::Check | Kind::MemoryValidate => None,
    }
}

/// One value of each flag for each row.
type Values = Vec<(&'static str, char, Vec<String>)>;

fn of_rows(kind: Kind, rows: &[&Value]) -> Option<String> {
    let configs: Vec<RunConfig> =
        rows.iter().map(|row| Inputs::deserialize(*row).ok()?.config()).collect::<Option<_>>()?;
    // A built-in workload has no file, and is used without a trace.
    let traces = rows.iter().map(|row| row["trace"]["file"].as_str().unwrap_or(""));
    words(kind, traces, flags(&configs, &RunConfig::of(Policy::DEFAULT)))
}

fn of_recordings(kind: Kind, rows: &[&Value]) -> Option<String> {
    if rows.iter().any(|row| row.get("allocator").is_some()) {
        return None;
    }
    let configs: Vec<RunConfig> = rows.iter().map(|row| of_kernel(row)).collect::<Option<_>>()?;
    let advise = |row: &&Value| Some(advise_word(Advise::deserialize(&row["advise"]).ok()?));
    let prctl = |row: &&Value| Some(prctl_word(ThpPrctl::deserialize(&row["thp_prctl"]).ok()?).to_string());
    let mut values = flags(&configs, &RunConfig::of(Policy::DEFAULT));
    for (name, words, default) in [
        ("advise", rows.iter().map(advise).collect::<Option<Vec<String>>>()?, "none"),
        ("thp-prctl", rows.iter().map(prctl).collect::<Option<Vec<String>>>()?, "recorded"),
    ] {
        if words.iter().any(|word| word != default) {
            values.push((name, ',', words));
        }
    }
    words(kind, rows.iter().map(|row| row["recording"]["file"].as_str().unwrap_or("")), values)
}

/// The flags of which a row has another value than `default`.
fn flags(configs: &[RunConfig], default: &RunConfig) -> Values {
    let of_flag = |flag: &&Flag| -> Vec<String> { configs.iter().map(|config| flag.show(config)).collect() };
    let is_given = |flag: &&Flag| of_flag(flag).iter().any(|value| *value != flag.show(default));
    let given = FLAGS.iter().filter(is_given);
    given.map(|flag| (flag.name, flag.separator(), of_flag(&flag))).collect()
}

/// The words of the command; `None` if the rows are not every combination of their values.
fn words<'a>(kind: Kind, files: impl Iterator<Item = &'a str>, values: Values) -> Option<String> {
    let files: Vec<&str> = files.collect();
    let rows = files.len();
    let files = distinct(files);
    let mut words = vec!["hksim".to_string(), kind.command().to_string()];
    words.extend(files.iter().filter(|file| !file.is_empty()).map(|file| quoted(file)));
    let mut product = files.len();
    for (name, separator, values) in values {
        let values = distinct(values);
        product *= values.len();
        words.push(format!("--{name} {}", quoted(&values.join(&separator.to_string()))));
    }
    (product == rows).then(|| words.join(" "))
}

fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// A word that a shell reads as one.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./,+=:".contains(character);
    if word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

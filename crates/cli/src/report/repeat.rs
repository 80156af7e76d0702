//! The command that repeats a result, from the inputs that the result states.

use hksim_policy::Policy;
use serde::Deserialize;
use serde_json::Value;

use crate::flags::RunConfig;
use crate::flags::row::Inputs;
use crate::flags::table::FLAGS;

/// The command, for the rows of a result; `None` if a row has no policy, or the rows are no product of lists.
pub fn command(name: &str, rows: &[&Value]) -> Option<String> {
    let configs: Vec<RunConfig> =
        rows.iter().map(|row| Inputs::deserialize(*row).ok()?.config()).collect::<Option<_>>()?;
    let mut traces: Vec<&str> = Vec::new();
    for row in rows {
        // A built-in workload has no file, and is used without a trace.
        let file = row["trace"]["file"].as_str().unwrap_or("");
        if !traces.contains(&file) {
            traces.push(file);
        }
    }
    let default = RunConfig::of(Policy::DEFAULT);
    let mut words = vec!["hksim".to_string(), name.to_string()];
    words.extend(traces.iter().filter(|file| !file.is_empty()).map(|file| quoted(file)));
    let mut product = traces.len();
    for flag in FLAGS.iter() {
        let mut values: Vec<String> = Vec::new();
        for value in configs.iter().map(|config| flag.show(config)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        product *= values.len();
        if values != [flag.show(&default)] {
            words.push(format!("--{} {}", flag.name, quoted(&values.join(&flag.separator().to_string()))));
        }
    }
    (product == rows.len()).then(|| words.join(" "))
}

/// A word that a shell reads as one.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./,+=:".contains(character);
    if word.chars().all(is_plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

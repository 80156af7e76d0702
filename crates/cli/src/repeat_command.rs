//! The command that repeats a result: the arguments that the result states.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command_line::{parsed, stated};
use hksim_results::Kind;
use hksim_text::shell::line;

/// The command, which writes the result to the file `again`; `None` if the result does not state its arguments, or is
/// of a process. `files` are the current names of files that it names.
pub fn command(result: &Value, again: &str, files: &BTreeMap<String, String>) -> Option<String> {
    let words = stated(result).filter(|_| !matches!(Kind::of("", result), Ok(Kind::Inspect)))?;
    let name = words.first()?;
    let arguments = parsed(&words).ok()?;
    let mut words = vec!["hksim", name.as_str()];
    for argument in &arguments {
        let (last, before) = argument.words.split_last()?;
        words.extend(before.iter().map(String::as_str));
        words.push(files.get(last).map(String::as_str).filter(|_| argument.is_file).unwrap_or(last));
    }
    words.extend(["--format", "json", "-o", again]);
    Some(line(words))
}

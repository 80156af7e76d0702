//! The command that repeats a result: the arguments that the result states.

use serde_json::Value;

use super::Input;
use crate::command_line::parsed;
use hksim_text::shell::line;

/// The command, which writes the result to `input.again`; `None` if the result does not state its arguments.
pub fn command(input: &Input) -> Option<String> {
    let words = stated(&input.result)?;
    let name = words.first()?;
    let arguments = parsed(&words).ok()?;
    let mut words = vec!["hksim", name.as_str()];
    for argument in &arguments {
        let (last, before) = argument.words.split_last()?;
        words.extend(before.iter().map(String::as_str));
        words.push(input.files.get(last).filter(|_| argument.is_file).unwrap_or(last));
    }
    words.extend(["--format", "json", "-o", &input.again]);
    Some(line(words))
}

/// The arguments that a result states.
pub fn stated(result: &Value) -> Option<Vec<String>> {
    let words = result.get("command")?.as_array()?;
    words.iter().map(|word| word.as_str().map(str::to_string)).collect()
}

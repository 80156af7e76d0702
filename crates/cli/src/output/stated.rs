//! The arguments that made a result, which it states.

use std::sync::OnceLock;

use serde::Serialize;

static COMMAND: OnceLock<Vec<String>> = OnceLock::new();

/// Sets the arguments that results of this process state. Only the first call has an effect.
pub fn set(words: Vec<String>) {
    if !words.is_empty() {
        let _ = COMMAND.set(words);
    }
}

/// A result with the arguments that made it.
#[derive(Debug, Serialize)]
pub struct Stated<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static [String]>,
    #[serde(flatten)]
    result: &'a T,
}

impl<'a, T> Stated<'a, T> {
    /// The result of this process.
    pub fn new(result: &'a T) -> Stated<'a, T> {
        Stated { command: COMMAND.get().map(Vec::as_slice), result }
    }
}

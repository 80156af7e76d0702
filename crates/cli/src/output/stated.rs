//! The arguments that made a result, which it states.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;

static COMMAND: OnceLock<Vec<String>> = OnceLock::new();
static PROFILE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the arguments that results of this process state. Only the first call has an effect.
pub fn set(words: Vec<String>) {
    if !words.is_empty() {
        let _ = COMMAND.set(words);
    }
}

/// Adds a profile that is used without being given: another machine has another one. Only the first call has an effect.
pub fn use_profile(path: &Path) {
    let _ = PROFILE.set(path.to_path_buf());
}

/// A result with the arguments that made it.
#[derive(Debug, Serialize)]
pub struct Stated<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(flatten)]
    result: &'a T,
}

impl<'a, T> Stated<'a, T> {
    /// The result of this process.
    pub fn new(result: &'a T) -> Stated<'a, T> {
        let profile = PROFILE.get().map(|path| ["--profile".to_string(), path.display().to_string()]);
        let command = COMMAND.get().map(|words| words.iter().cloned().chain(profile.into_iter().flatten()).collect());
        Stated { command, result }
    }
}

//! Memory recordings (`.hkm`): recording, summaries, tools, predictions and their validation.

pub mod again;
pub mod allocators;
pub mod info;
pub mod predict;
pub mod record;
pub mod settings;
pub mod sim;
mod sweep_view;
pub mod tools;
pub mod validate;

use std::path::Path;

use anyhow::{Result, bail};
use hksim_trace::error::TraceError;

pub use crate::output::file::is_recording;

/// Refuses flags that are only for traces of allocator calls.
///
/// # Errors
/// One of them was given.
pub fn refuse_flags(path: &Path, flags: &[(&str, bool)]) -> Result<()> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            bail!("{}: --{flag} is for traces (.hkt); leave it out for a memory recording", path.display())
        }
        None => Ok(()),
    }
}

/// Refuses a memory recording where another file is needed.
///
/// # Errors
/// The file is a memory recording.
pub fn refuse(path: &Path) -> Result<(), TraceError> {
    match is_recording(path) {
        true => Err(TraceError::MemoryRecording { path: path.to_path_buf() }),
        false => Ok(()),
    }
}

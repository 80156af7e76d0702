//! `hksim validate` for memory recordings: runs the program again under each setting, and compares.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_cost_model::Profile;
use hksim_validate::memory::{Options, Recorded, can_be_measured, set_modes, validate};
use hksim_validate::{Listener, Verdict};
use tempfile::TempDir;

use super::again::AgainArgs;
use super::settings::MemoryArgs;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::output::{OutputArgs, note, screen, warn};
use hksim_reports::memory_validation as view;
use hksim_results::validate::MemoryValidation;

/// Exit status when a check failed.
const CHECK_FAILED: u8 = 1;
/// Runs of the program per setting, if not given.
pub const RUNS: u32 = 3;

/// What to validate.
pub struct Request<'a> {
    /// The recordings.
    pub paths: &'a [PathBuf],
    /// Flags of the kernel.
    pub policy: &'a PolicyArgs,
    /// Edits of the recording.
    pub memory: &'a MemoryArgs,
    /// Which program is run, and how.
    pub again: &'a AgainArgs,
    /// Runs of the program per setting.
    pub runs: u32,
    /// Whether the machine's modes may be changed.
    pub set_modes: bool,
    /// The machine whose costs give the predicted system time.
    pub profile: Option<&'a Profile>,
    /// Destination of the result.
    pub output: &'a OutputArgs,
}

/// Prints what happens.
pub struct OnScreen;

impl Listener for OnScreen {
    fn note(&self, text: &str) {
        note(text);
    }

    fn warn(&self, text: &str) {
        warn(text);
    }
}

/// Validates recordings.
///
/// # Errors
/// Bad input, or the program cannot be run.
pub fn run(request: &Request<'_>) -> Result<ExitCode> {
    if let Some(trace) = request.paths.iter().find(|path| !super::is_recording(path)) {
        bail!("{}: not a memory recording (.hkm), but other files are; validate them separately", trace.display());
    }
    if request.memory.by.is_some() {
        bail!("--by site: validate compares whole processes; use `hksim sim --by site`");
    }
    let subjects = request.paths.iter().map(|path| Recorded::open(path)).collect::<Result<Vec<_>, _>>()?;
    request.again.check(subjects.iter().map(|subject| (subject.recording.path.as_path(), subject.started())))?;
    let mut modes = if request.set_modes { Some(set_modes(&OnScreen)?) } else { None };
    // Read now: until then another process may have changed the modes.
    let settings = request.memory.settings(request.policy, BaseKernel::Host)?;
    settings.iter().try_for_each(|named| can_be_measured(&named.setting))?;
    let folder = TempDir::with_prefix("hksim-").context("cannot create a temporary directory; set TMPDIR")?;
    let again = request.again.again();
    let options = Options { again: &again, runs: request.runs, profile: request.profile, listener: &OnScreen };
    let mut rows = Vec::new();
    for recorded in &subjects {
        for named in &settings {
            rows.push(validate(recorded, &named.setting, &options, modes.as_mut(), folder.path())?);
        }
    }
    drop(modes);
    let result = MemoryValidation::new(rows);
    let MemoryValidation { rows, verdict, .. } = &result;
    request.output.emit(&result, &view::csv(rows), || view::table(rows, *verdict, screen::columns()))?;
    Ok(match verdict {
        Verdict::Failed => ExitCode::from(CHECK_FAILED),
        Verdict::Ok | Verdict::Skipped => ExitCode::SUCCESS,
    })
}

//! `hksim validate` for memory recordings and for replays on any allocator: runs the program, or the replay, again under each
//! setting, and compares.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_conformance::SetModes;
use hksim_cost_model::Profile;
use hksim_memory_sim::Setting;
use hksim_replay::compare::{Allocator, Found, expanded};
use hksim_validate::memory::replayed::{ReplaySubject, replay_of, validate_replay};
use hksim_validate::memory::{Again, KernelMemory, Options, Recorded, Row, can_be_measured, set_modes, validate};
use hksim_validate::{Listener, Verdict};
use tempfile::TempDir;

use super::again::AgainArgs;
use super::settings::MemoryArgs;
use crate::allocators;
use crate::flags::{BaseKernel, PolicyArgs};
use crate::inputs::Replayable;
use crate::output::{OutputArgs, note, screen, warn};
use hksim_reports::memory_validation as view;
use hksim_results::validate::MemoryValidation;

/// Exit status when a check failed.
const CHECK_FAILED: u8 = 1;
/// Runs of the program per setting, if not given.
pub const RUNS: u32 = 3;

/// What to validate.
pub struct Request<'a> {
    /// Flags of the kernel.
    pub policy: &'a PolicyArgs,
    /// Edits of the recording.
    pub memory: &'a MemoryArgs,
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

/// Validates recordings. `again` says which program is run, and how.
///
/// # Errors
/// Bad input, or the program cannot be run.
pub fn run(request: &Request<'_>, paths: &[PathBuf], again: &AgainArgs) -> Result<ExitCode> {
    if let Some(trace) = paths.iter().find(|path| !super::is_recording(path)) {
        bail!("{}: not a memory recording (.hkm), but other files are; validate them separately", trace.display());
    }
    let subjects = paths.iter().map(|path| Recorded::open(path)).collect::<Result<Vec<_>, _>>()?;
    again.check(subjects.iter().map(|subject| (subject.recording.path.as_path(), subject.started())))?;
    rows(request, &again.again(), subjects.len(), |number, setting, options, modes, folder| {
        Ok(validate(&subjects[number], setting, options, modes, folder)?)
    })
}

/// Validates replays of traces on allocators that exist.
///
/// # Errors
/// Bad input, or a replay cannot be run.
pub fn on_allocators(request: &Request<'_>, words: &[String], traces: &[Replayable]) -> Result<ExitCode> {
    let words = expanded(words).context("--on")?;
    // As in `sweep --allocators`.
    let named = |word: &String| allocators::named("on", if word == "hksim" { "native" } else { word });
    let allocators = words.iter().map(named).collect::<Result<Vec<_>>>()?;
    let spec = |replayable: &Replayable, allocator: &Allocator| match &allocator.found {
        Found::Here(target) => Ok(replay_of(&replayable.path, &replayable.trace, target)),
        Found::Missing(why) => Err(why.clone()),
    };
    let pairs = traces.iter().flat_map(|trace| allocators.iter().map(move |allocator| (trace, allocator)));
    let replays: Vec<_> = pairs.map(|(trace, allocator)| (trace, allocator, spec(trace, allocator))).collect();
    rows(request, &Again::default(), replays.len(), |number, setting, options, modes, folder| {
        let (trace, allocator, spec) = &replays[number];
        let spec = spec.as_ref().map_err(String::as_str);
        let subject = ReplaySubject { name: &trace.label, word: &allocator.name, spec };
        Ok(validate_replay(&subject, setting, options, modes, folder)?)
    })
}

/// Measures so many subjects, by their number, under each setting, and prints the rows.
fn rows(
    request: &Request<'_>,
    again: &Again,
    subjects: usize,
    row: impl Fn(usize, &Setting, &Options<'_>, Option<&mut SetModes>, &Path) -> Result<Row>,
) -> Result<ExitCode> {
    if request.memory.by.is_some() {
        bail!("--by site: validate compares whole processes; use `hksim sim --by site`");
    }
    let mut modes = if request.set_modes { Some(set_modes(&OnScreen)?) } else { None };
    // Read now: until then another process may have changed the modes.
    let settings = request.memory.settings(request.policy, BaseKernel::Host)?;
    settings.iter().try_for_each(|named| can_be_measured(&named.setting))?;
    let folder = TempDir::with_prefix("hksim-").context("cannot create a temporary directory; set TMPDIR")?;
    let kernel_memory = KernelMemory::default();
    let Request { runs, profile, .. } = *request;
    let options = Options { again, runs, profile, listener: &OnScreen, kernel_memory: &kernel_memory };
    let mut rows = Vec::new();
    for number in 0..subjects {
        for named in &settings {
            rows.push(row(number, &named.setting, &options, modes.as_mut(), folder.path())?);
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

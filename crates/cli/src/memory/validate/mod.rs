//! `hksim validate` for memory recordings: runs the program again under each setting, and compares.

pub mod again;
mod blind;
mod causes;
mod compare;
mod figures;
mod measure;
mod pages;
mod place;
mod repetition;
mod rerun;
mod stacks;
mod supervise;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use hksim_conformance::{ModeError, SetModes};
use hksim_cost_model::Profile;
use hksim_linux_mm::script::Header as Modes;
use hksim_linux_mm::{KernelConfig, PMD_ORDER};
use hksim_memory_sim::{Advise, Detail, RunFile, RunFiles, ThpPrctl};
use hksim_memory_trace::{Header, Reader};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use self::again::AgainArgs;
use self::compare::{Comparison, Subject, compare};
use self::measure::{Program, Run};
pub use self::view::{figures_table, notes};
use super::price::MemorySystemTime;
use super::row::predict;
use super::settings::{MemoryArgs, NamedSetting};
use crate::flags::{BaseKernel, PolicyArgs};
use crate::host;
use crate::output::stamp::Stamp;
use crate::output::{OutputArgs, note};
use crate::validate::{Class, Verdict};

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

/// One recording under one setting.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// The recording.
    file: String,
    /// The command that was run.
    command: Vec<String>,
    /// The kernel, as flags.
    setting: Vec<(String, String)>,
    /// The claim.
    class: Option<Class>,
    /// Whether it holds.
    verdict: Verdict,
    /// Why it does not, or why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The figures; `None` if skipped.
    #[serde(flatten)]
    comparison: Option<Comparison>,
    /// The predicted time of the recording in the kernel, if a profile was given. It is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_time: Option<MemorySystemTime>,
}

/// A recording with those of its run.
struct Recorded {
    recording: RunFile,
    files: RunFiles,
}

impl Recorded {
    fn open(path: &Path) -> Result<Self> {
        let header = Reader::open(path)?.header().clone();
        Ok(Self { recording: RunFile { path: path.to_path_buf(), header }, files: RunFiles::around(path)? })
    }

    /// The header of the program that was started.
    fn started(&self) -> Option<&Header> {
        self.files.started().map(|file| &file.header)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    stamp: Stamp,
    verdict: Verdict,
    rows: Vec<Row>,
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
    let subjects = request.paths.iter().map(|path| Recorded::open(path)).collect::<Result<Vec<_>>>()?;
    request.again.check(subjects.iter().map(|subject| (subject.recording.path.as_path(), subject.started())))?;
    let mut modes = match request.set_modes {
        true => match set_modes() {
            Ok(modes) => Some(modes),
            Err(why) => bail!("--set-modes: {why}"),
        },
        false => None,
    };
    // Read now: until then another process may have changed the modes.
    let settings = request.memory.settings(request.policy, BaseKernel::Host)?;
    settings.iter().try_for_each(can_be_measured)?;
    let folder = TempDir::with_prefix("hksim-").context("cannot create a temporary directory; set TMPDIR")?;
    let mut rows = Vec::new();
    for recorded in &subjects {
        for named in &settings {
            rows.push(row(recorded, named, request, modes.as_mut(), folder.path())?);
        }
    }
    drop(modes);
    let verdict = rows.iter().map(|row| row.verdict).max().unwrap_or(Verdict::Skipped);
    let report = Report { stamp: Stamp::HERE, verdict, rows };
    request.output.emit(&report, &view::csv(&report.rows), || view::table(&report.rows, verdict))?;
    Ok(match verdict {
        Verdict::Failed => ExitCode::from(CHECK_FAILED),
        Verdict::Ok | Verdict::Skipped => ExitCode::SUCCESS,
    })
}

/// Refuses edits that exist only in the recording.
fn can_be_measured(named: &NamedSetting) -> Result<()> {
    if named.setting.advise != Advise::Recorded {
        bail!(
            "--advise changes the recording, not the program; to measure it, set the allocator's own option \
             (GLIBC_TUNABLES=glibc.malloc.hugetlb=1) and record and validate again"
        );
    }
    if named.setting.thp_prctl == ThpPrctl::Ignored {
        bail!("--thp-prctl ignored changes the recording, not the program; leave it out");
    }
    if named.setting.kernel.rules.version != host::version()? {
        bail!("--kernel: this machine runs another version; only its own rules can be measured here");
    }
    Ok(())
}

fn row(
    Recorded { recording, files }: &Recorded,
    named: &NamedSetting,
    request: &Request<'_>,
    modes: Option<&mut SetModes>,
    folder: &Path,
) -> Result<Row> {
    let mut row = Row {
        file: recording.path.display().to_string(),
        command: recording.header.command.clone(),
        setting: super::view::setting_words(named),
        class: None,
        verdict: Verdict::Skipped,
        reason: None,
        comparison: None,
        system_time: predicted_time(&recording.path, named, request.profile)?,
    };
    let skipped = |row, reason| Ok(Row { reason: Some(reason), ..row });
    if let Some(reason) = apply(&named.setting.kernel, modes)? {
        return skipped(row, reason);
    }
    let program = match Program::of(recording, files, named.setting.thp_prctl, request.again)? {
        Ok(program) => program,
        Err(reason) => return skipped(row, reason),
    };
    program.announce(recording);
    let runs = (0..request.runs).map(|number| program.run(&folder.join(format!("{number}.hkm"))));
    let runs = runs.collect::<Result<Vec<Run>>>()?;
    if !has_modes(&named.setting.kernel)? {
        return skipped(row, "the machine's modes changed during the runs".to_string());
    }
    if let Some(reason) = runs.iter().find_map(|run| run.disturbed()) {
        return skipped(row, reason);
    }
    let subject = Subject { recording, files, program: &program };
    let judged = compare(&subject, named, runs, folder)?;
    (row.class, row.verdict) = (Some(judged.class), judged.verdict);
    (row.reason, row.comparison) = (judged.reason, Some(judged.comparison));
    Ok(row)
}

/// The predicted time of a recording in the kernel.
fn predicted_time(path: &Path, named: &NamedSetting, profile: Option<&Profile>) -> Result<Option<MemorySystemTime>> {
    let Some(profile) = profile else { return Ok(None) };
    let rows = predict(path, std::slice::from_ref(named), None, Detail::Figures)?;
    Ok(rows.first().map(|row| MemorySystemTime::of(&row.prediction, profile)))
}

/// Locks the machine's modes, and pauses khugepaged.
fn set_modes() -> std::result::Result<SetModes, ModeError> {
    let waiting = || note("waiting: another process has changed this machine's modes and not restored them yet");
    let mut modes = SetModes::new(waiting)?;
    modes.pause_khugepaged()?;
    Ok(modes)
}

/// Sets the modes of a setting. Returns the reason why it cannot be measured here.
fn apply(kernel: &KernelConfig, modes: Option<&mut SetModes>) -> Result<Option<String>> {
    let Some(modes) = modes else {
        return Ok(
            (!has_modes(kernel)?).then(|| "this machine has other modes; add --set-modes (needs root)".to_string())
        );
    };
    let mut sizes = [None; PMD_ORDER + 1];
    (2..=PMD_ORDER).for_each(|order| sizes[order] = Some(kernel.thp.sizes[order]));
    let (thp, use_zero_page) = (Some(kernel.thp.global), Some(kernel.use_zero_page));
    Ok(modes.apply(&Modes { thp, sizes, use_zero_page, ..Modes::default() }).err().map(|why| why.to_string()))
}

/// Whether the machine has the modes of a setting now.
fn has_modes(kernel: &KernelConfig) -> Result<bool> {
    let here = host::kernel_config()?;
    Ok(here.thp == kernel.thp && here.use_zero_page == kernel.use_zero_page)
}

//! Memory recordings: runs the program again under each setting, and compares. [`replayed`] does the same with replays of
//! traces on any allocator.

mod blind;
mod causes;
mod compare;
mod figures;
mod limited;
mod measure;
mod pages;
mod place;
mod repetition;
pub mod replayed;
mod rerun;
mod stacks;
mod supervise;

use std::ffi::OsString;
use std::path::Path;

use hksim_conformance::SetModes;
use hksim_cost_model::{Profile, SystemTime};
use hksim_explore::host;
use hksim_linux_mm::script::Header as Modes;
use hksim_linux_mm::{KernelConfig, KhugepagedWork, PMD_ORDER};
use hksim_memory_sim::groups::setting_words;
use hksim_memory_sim::{Advise, AllocatorLabel, Detail, MadvFree, RunFile, RunFiles, Setting, ThpPrctl, system_time};
use hksim_memory_trace::{Header, Reader};
use hksim_policy::units::Size;
use serde::{Deserialize, Serialize};

use self::compare::{Judged, Subject, compare, predicted};
use self::measure::{Program, Run};
use crate::error::ValidateError;
use crate::listener::Listener;
use crate::verdict::{Class, Verdict};

pub use self::compare::{Comparison, Difference};
pub use self::figures::{Figures, kib};
pub use self::limited::{
    Agreement, KernelMemory, KillPlace, LimitFigures, LimitedRun, PeakCharge, RunOutcome, words as outcome_words,
};
pub use self::rerun::Rerun;
pub use self::stacks::StackFigures;
pub use self::supervise::{Moment, Stop, Supervision, Supervisor};

/// Which program is run, and how.
#[derive(Clone, Debug, Default)]
pub struct Again {
    /// The command; empty for the recorded one.
    pub command: Vec<OsString>,
    /// Its load and its end.
    pub supervision: Supervision,
}

impl Again {
    /// What is run for a recording whose started program has this header.
    ///
    /// # Errors
    /// The reason why it cannot be run.
    pub fn rerun(&self, started: Option<&Header>) -> Result<Rerun, String> {
        if started.is_some_and(|header| header.beginning.is_attached()) {
            return Err(Rerun::attached());
        }
        match self.command.is_empty() {
            true => Rerun::recorded(started.ok_or_else(Rerun::unknown)?),
            false => Ok(Rerun::given(&self.command)),
        }
    }
}

/// One recording under one setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The recording.
    pub file: String,
    /// The allocator of a replay, and its trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorLabel>,
    /// The command that was run.
    pub command: Vec<String>,
    /// The kernel, as flags.
    pub setting: Vec<(String, String)>,
    /// The claim.
    pub class: Option<Class>,
    /// Whether it holds.
    pub verdict: Verdict,
    /// Why it does not, or why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The figures; `None` if skipped.
    #[serde(flatten)]
    pub comparison: Option<Comparison>,
    /// The predicted time of the recording in the kernel, if a profile was given. It is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_time: Option<SystemTime>,
    /// The program under a memory limit. The other figures are absent then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<LimitFigures>,
}

/// The flag of memory limits in [`Row::setting`].
const LIMIT: &str = "memory-limit";

impl Row {
    /// Whether it is about a memory limit.
    pub fn has_limit(&self) -> bool {
        self.setting.iter().any(|(flag, _)| flag == LIMIT)
    }

    /// A row without a measurement.
    fn skipped(file: String, setting: &Setting, reason: Option<String>) -> Self {
        let limit = setting.kernel.memory_limit_bytes.map(|bytes| (LIMIT.to_string(), Size(bytes).to_string()));
        Self {
            file,
            allocator: None,
            command: Vec::new(),
            setting: setting_words(setting).into_iter().chain(limit).collect(),
            class: None,
            verdict: Verdict::Skipped,
            reason,
            comparison: None,
            system_time: None,
            memory_limit: None,
        }
    }
}

/// A recording with those of its run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The recording.
    pub recording: RunFile,
    /// The recordings of its run.
    pub files: RunFiles,
}

impl Recorded {
    /// Opens a recording, and finds the others of its run next to it.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn open(path: &Path) -> Result<Self, ValidateError> {
        let header = Reader::open(path)?.header().clone();
        Ok(Self { recording: RunFile { path: path.to_path_buf(), header }, files: RunFiles::around(path)? })
    }

    /// The header of the program that was started.
    pub fn started(&self) -> Option<&Header> {
        self.files.started().map(|file| &file.header)
    }
}

/// Refuses edits that exist only in the recording.
///
/// # Errors
/// It is such an edit, or another kernel version than this machine's.
pub fn can_be_measured(setting: &Setting) -> Result<(), ValidateError> {
    if setting.advise != Advise::Recorded {
        return Err(ValidateError::NotMeasurable(
            "--advise changes the recording, not the program; to measure it, set the allocator's own option \
             (GLIBC_TUNABLES=glibc.malloc.hugetlb=1) and record and validate again",
        ));
    }
    if setting.thp_prctl == ThpPrctl::Ignored {
        return Err(ValidateError::NotMeasurable(
            "--thp-prctl ignored changes the recording, not the program; leave it out",
        ));
    }
    if setting.madv_free != MadvFree::Recorded {
        return Err(ValidateError::NotMeasurable(
            "--madv-free changes the recording, not the program; to measure it, set the allocator's own option \
             (MALLOC_CONF=muzzy_decay_ms:0, GODEBUG=madvdontneed=1) and record and validate again",
        ));
    }
    if setting.kernel.khugepaged.work == KhugepagedWork::Bound {
        return Err(ValidateError::NotMeasurable(
            "--khugepaged bound: a bound cannot be measured; use settled, which waits for scans at the exit",
        ));
    }
    if setting.kernel.memory_limit_bytes.is_some() && setting.kernel.khugepaged.work == KhugepagedWork::Settled {
        return Err(ValidateError::NotMeasurable(
            "--memory-limit: what khugepaged does at the exit is not measured under a limit; leave --khugepaged out",
        ));
    }
    if setting.kernel.rules.version != host::version()?.version {
        return Err(ValidateError::NotMeasurable(
            "--kernel: this machine runs another version; only its own rules can be measured here",
        ));
    }
    Ok(())
}

/// How a recording is validated.
pub struct Options<'a> {
    /// Which program is run, and how.
    pub again: &'a Again,
    /// Runs of the program per setting.
    pub runs: u32,
    /// The machine whose costs give the predicted system time.
    pub profile: Option<&'a Profile>,
    /// Is told what happens.
    pub listener: &'a dyn Listener,
    /// With memory limits: what the kernel needs for the processes themselves. It is found when it is needed first.
    pub kernel_memory: &'a KernelMemory,
}

/// Runs the program of a recording again under a setting, and compares. With `modes`, the machine's modes are set
/// to those of the setting. Recordings of the runs are written to `folder`.
///
/// # Errors
/// A recording cannot be read or written, or the program cannot be run.
pub fn validate(
    Recorded { recording, files }: &Recorded,
    setting: &Setting,
    options: &Options<'_>,
    modes: Option<&mut SetModes>,
    folder: &Path,
) -> Result<Row, ValidateError> {
    let row = Row {
        command: recording.header.command.clone(),
        system_time: predicted_time(&recording.path, setting, options)?,
        ..Row::skipped(recording.path.display().to_string(), setting, None)
    };
    let skipped = |row, reason| Ok(Row { reason: Some(reason), ..row });
    if let Some(reason) = apply(&setting.kernel, modes)? {
        return skipped(row, reason);
    }
    let program = match Program::of(recording, files, setting, options.again, options.listener)? {
        Ok(program) => program,
        Err(reason) => return skipped(row, reason),
    };
    program.announce(recording);
    let subject = Subject { recording, files, program: &program };
    if setting.kernel.memory_limit_bytes.is_some() {
        return limited::validate(&subject, setting, options, folder, row);
    }
    let runs = (0..options.runs).map(|number| program.run(&folder.join(format!("{number}.hkm"))));
    let runs = runs.collect::<Result<Vec<Run>, _>>()?;
    if !has_modes(&setting.kernel)? {
        return skipped(row, "the machine's modes changed during the runs".to_string());
    }
    if let Some(reason) = runs.iter().find_map(|run| run.disturbed()) {
        return skipped(row, reason);
    }
    let Judged { class, verdict, reason, comparison } = compare(&subject, setting, runs, folder)?;
    Ok(Row { class: Some(class), verdict, reason, comparison: Some(comparison), ..row })
}

/// The predicted time of a recording in the kernel.
fn predicted_time(path: &Path, setting: &Setting, options: &Options<'_>) -> Result<Option<SystemTime>, ValidateError> {
    let Some(profile) = options.profile else { return Ok(None) };
    let rows = predicted(options.listener, path, setting, Detail::Figures)?;
    Ok(rows.first().map(|row| system_time(&row.prediction, profile)))
}

/// Locks the machine's modes, and pauses khugepaged.
///
/// # Errors
/// The modes cannot be changed.
pub fn set_modes(listener: &dyn Listener) -> Result<SetModes, ValidateError> {
    let waiting =
        || listener.note("waiting: another process has changed this machine's modes and not restored them yet");
    let mut modes = SetModes::new(waiting)?;
    modes.pause_khugepaged()?;
    Ok(modes)
}

/// Sets the modes of a setting. Returns the reason why it cannot be measured here.
fn apply(kernel: &KernelConfig, modes: Option<&mut SetModes>) -> Result<Option<String>, ValidateError> {
    let settles = kernel.khugepaged.work == KhugepagedWork::Settled;
    let Some(modes) = modes else {
        if settles {
            return Ok(Some("--khugepaged settled sets khugepaged's pace; add --set-modes (needs root)".to_string()));
        }
        return Ok(
            (!has_modes(kernel)?).then(|| "this machine has other modes; add --set-modes (needs root)".to_string())
        );
    };
    let mut sizes = [None; PMD_ORDER + 1];
    (2..=PMD_ORDER).for_each(|order| sizes[order] = Some(kernel.thp.sizes[order]));
    let (thp, use_zero_page) = (Some(kernel.thp.global), Some(kernel.use_zero_page));
    let limits = settles.then_some(kernel.khugepaged);
    let max_ptes_none = limits.map(|limits| limits.max_ptes_none);
    let max_ptes_shared = limits.map(|limits| limits.max_ptes_shared);
    let modes = modes.apply(&Modes { thp, sizes, use_zero_page, max_ptes_none, max_ptes_shared, ..Modes::default() });
    Ok(modes.err().map(|why| why.to_string()))
}

/// Whether the machine has the modes of a setting now.
fn has_modes(kernel: &KernelConfig) -> Result<bool, ValidateError> {
    let here = host::kernel_config()?;
    Ok(here.thp == kernel.thp && here.use_zero_page == kernel.use_zero_page)
}

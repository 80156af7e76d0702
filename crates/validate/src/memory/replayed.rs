//! Records the page operations of a replay, and predicts them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use hksim_engine::TouchRule;
use hksim_explore::inputs::Trace;
use hksim_linux_mm::ThpMode;
use hksim_linux_probe::sysfs;
use hksim_memory_record::{HugePages, Options, RecordingReport, SnapshotsOf, Source, Streams, record};
use hksim_memory_sim::{AllocatorLabel, Detail, MemoryRow, Setting, predict};
use hksim_replay::{ObservedChild, ReplaySpec, Target};

use crate::error::ValidateError;
use crate::listener::Listener;

/// Records a replay to a file. `thp_mode` is the mode that its allocator reads; `None` for the machine's.
///
/// # Errors
/// The replay fails or cannot be recorded.
pub fn record_replay(spec: &ReplaySpec, path: &Path, thp_mode: Option<&str>) -> Result<RecordingReport, ValidateError> {
    let child = ObservedChild::of(spec)?;
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let output = folder.path().join("report");
    let arguments = child.arguments.iter().map(OsString::from);
    let command: Vec<OsString> = [child.program.into()].into_iter().chain(arguments).collect();
    let options = Options {
        output: path.to_path_buf(),
        // Some allocators depend on the alignment of their addresses. A result must not depend on chance.
        fixes_addresses: true,
        huge_pages: HugePages::Off,
        duration: None,
        directory: None,
        shown_thp_mode: thp_mode.map(str::to_string),
        variables: child.environment,
        streams: Streams::Job { input: child.job, output: output.clone() },
        snapshots_of: SnapshotsOf::Nothing,
        source: Source::Auto,
        stack_depth: None,
    };
    let report = record(&options, &command)?;
    let said = fs::read(&output).map_err(|source| ValidateError::Folder { path: output, what: "read", source })?;
    ObservedChild::check(&said)?;
    Ok(report)
}

/// The replay of a trace on an allocator, all touches as they are recorded or assumed.
pub fn replay_of(path: &Path, trace: &Trace, target: &Target) -> ReplaySpec {
    ReplaySpec::ordered(path, target.clone(), TouchRule::usual(trace.header.touch))
}

/// Replays a trace once for each THP mode of the settings, records its page operations to the file `recording`, and
/// predicts every setting. `word` names the allocator.
///
/// # Errors
/// The replay fails or cannot be recorded, or allocators would see another mode here.
pub fn predict_replay(
    spec: &ReplaySpec,
    word: &str,
    settings: &[Setting],
    recording: &Path,
    listener: &dyn Listener,
) -> Result<Vec<MemoryRow>, ValidateError> {
    let (library, environment) = match &spec.on {
        Target::Malloc { preload, variables } => (preload.clone(), variables.iter().cloned().collect()),
        Target::Native(_) | Target::Design { .. } => (None, BTreeMap::new()),
    };
    let label = AllocatorLabel { name: word.to_string(), library, environment, trace: spec.trace.clone() };
    let mut rows: Vec<Option<MemoryRow>> = settings.iter().map(|_| None).collect();
    for mode in [ThpMode::Always, ThpMode::Madvise, ThpMode::Never] {
        let chosen: Vec<usize> = (0..settings.len()).filter(|&at| settings[at].kernel.thp.global == mode).collect();
        if chosen.is_empty() {
            continue;
        }
        let of_mode: Vec<Setting> = chosen.iter().map(|&at| settings[at].clone()).collect();
        let on = || format!("{word} on {}", spec.trace.display());
        record_replay(spec, recording, shown_mode(mode)?)
            .map_err(|why| ValidateError::Within { what: on(), source: Box::new(why) })?;
        let predicted = predict(recording, &of_mode, false, Detail::Figures)?;
        predicted.notes.iter().for_each(|note| listener.warn(note));
        for (&at, row) in chosen.iter().zip(predicted.rows) {
            rows[at] = Some(MemoryRow { allocator: Some(label.clone()), ..row });
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// The mode that an allocator must read at its start to behave as under this one: some advise their memory under one mode
/// only. `None` if the machine's mode serves.
fn shown_mode(mode: ThpMode) -> Result<Option<&'static str>, ValidateError> {
    let word = mode.word();
    if rustix::process::geteuid().is_root() {
        return Ok(Some(word));
    }
    match sysfs::choice(&format!("{}/enabled", sysfs::THP)) {
        Some(here) if here == word => Ok(None),
        here => {
            Err(ValidateError::OtherMode { wanted: word, here: here.unwrap_or_else(|| "no huge pages".to_string()) })
        }
    }
}

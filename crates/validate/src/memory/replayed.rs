//! Records the page operations of a replay on any allocator, predicts them, and compares with another replay.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use hksim_conformance::SetModes;
use hksim_engine::TouchRule;
use hksim_explore::inputs::Trace;
use hksim_linux_mm::ThpMode;
use hksim_linux_probe::sysfs;
use hksim_memory_record::{
    HugePages, MemoryRecordError, Options as RecordOptions, RecordingReport, SnapshotsOf, Source, Streams, record,
};
use hksim_memory_sim::{AfterEvents, AllocatorLabel, Detail, MemoryRow, Sample, Setting, predict_at};
use hksim_replay::compare::{Live, live_bytes};
use hksim_replay::{Moment, ObservedChild, ReplaySpec, Target};

use super::{Options, Recorded, Row};
use crate::error::ValidateError;
use crate::listener::Listener;

/// A recorded replay.
pub struct RecordedReplay {
    /// What was recorded.
    pub report: RecordingReport,
    /// When it passed the marks of its trace, or evenly spaced points, and the end: times since the start of the recording.
    pub stops: Vec<Moment>,
}

/// Records a replay to a file. `thp_mode` is the mode that its allocator reads; `None` for the machine's.
///
/// # Errors
/// The replay fails or cannot be recorded.
pub fn record_replay(spec: &ReplaySpec, path: &Path, thp_mode: Option<&str>) -> Result<RecordedReplay, ValidateError> {
    let child = ObservedChild::of(spec)?;
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let output = folder.path().join("report");
    let arguments = child.arguments.iter().map(OsString::from);
    let command: Vec<OsString> = [child.program.into()].into_iter().chain(arguments).collect();
    let options = RecordOptions {
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
    if said.is_empty() {
        return Err(ObservedChild::died(report.exit_code, report.exit_signal).into());
    }
    let moments = ObservedChild::moments(&said)?.unwrap_or_default();
    let since_start = |stop: &Moment| Some(Moment { time_ns: stop.time_ns.saturating_sub(report.start_ns?), ..*stop });
    Ok(RecordedReplay { stops: moments.stops.iter().filter_map(since_start).collect(), report })
}

/// From the first event to the last (CLOCK_MONOTONIC), by what a replay wrote to its output.
pub(crate) fn window(said: &[u8]) -> Option<RangeInclusive<u64>> {
    let moments = ObservedChild::moments(said).ok()??;
    Some(moments.began_ns..=moments.stops.last()?.time_ns)
}

/// The predicted memory at the stops of a replay.
fn over_events(trace: &Path, stops: &[Moment], row: &MemoryRow) -> Result<Vec<AfterEvents>, ValidateError> {
    let events: Vec<u64> = stops.iter().map(|stop| stop.events).collect();
    let live = live_bytes(trace, &events)?.into_iter().zip(&row.prediction.at_moments);
    let after = |(live, sample): (Live, &Sample)| AfterEvents {
        event: live.event,
        mark: live.mark,
        live_bytes: live.bytes,
        rss_bytes: sample.rss_bytes,
        huge_pages: sample.huge_pages,
    };
    Ok(live.map(after).collect())
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
    let label = label(spec, word);
    let mut rows: Vec<Option<MemoryRow>> = settings.iter().map(|_| None).collect();
    for mode in [ThpMode::Always, ThpMode::Madvise, ThpMode::Never] {
        let chosen: Vec<usize> = (0..settings.len()).filter(|&at| settings[at].kernel.thp.global == mode).collect();
        if chosen.is_empty() {
            continue;
        }
        let of_mode: Vec<Setting> = chosen.iter().map(|&at| settings[at].clone()).collect();
        let RecordedReplay { stops, .. } = record_replay(spec, recording, shown_mode(mode)?)
            .map_err(|why| ValidateError::of_replay(word, &spec.trace, why))?;
        let moments: Vec<u64> = stops.iter().map(|stop| stop.time_ns).collect();
        let predicted = predict_at(recording, &of_mode, &moments, false, Detail::Figures)?;
        predicted.notes.iter().for_each(|note| listener.warn(note));
        for (&at, row) in chosen.iter().zip(predicted.rows) {
            let over_events = over_events(&spec.trace, &stops, &row)?;
            rows[at] = Some(MemoryRow { allocator: Some(label.clone()), over_events, ..row });
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// Names the allocator of a replay by the word of the command line.
fn label(spec: &ReplaySpec, word: &str) -> AllocatorLabel {
    let (library, environment) = match &spec.on {
        Target::Malloc { preload, variables } => (preload.clone(), variables.iter().cloned().collect()),
        Target::Native(_) | Target::Design { .. } => (None, BTreeMap::new()),
    };
    AllocatorLabel { name: word.to_string(), library, environment, trace: spec.trace.clone() }
}

/// A replay to validate.
pub struct ReplaySubject<'a> {
    /// The trace's name in results.
    pub name: &'a str,
    /// The allocator, as the command line names it.
    pub word: &'a str,
    /// The replay, or the reason why there is no such allocator here.
    pub spec: Result<&'a ReplaySpec, &'a str>,
}

/// Records a replay with huge pages off, predicts it under a setting, and compares with replays under that setting. With
/// `modes`, the machine's modes are set to those of the setting. Recordings are written to `folder`.
///
/// # Errors
/// The replay fails, or a recording cannot be read or written.
pub fn validate_replay(
    subject: &ReplaySubject<'_>,
    setting: &Setting,
    options: &Options<'_>,
    mut modes: Option<&mut SetModes>,
    folder: &Path,
) -> Result<Row, ValidateError> {
    let name = subject.word.to_string();
    let (library, environment) = (None, BTreeMap::new());
    let missing = || AllocatorLabel { name, library, environment, trace: subject.name.into() };
    // A built-in trace is in a temporary file.
    let found = |spec| AllocatorLabel { trace: subject.name.into(), ..label(spec, subject.word) };
    let label = Some(subject.spec.map_or_else(|_| missing(), found));
    let skipped = |reason: String| Row {
        allocator: label.clone(),
        command: command(subject),
        ..Row::skipped(subject.name.to_string(), setting, Some(reason))
    };
    let spec = match subject.spec {
        Ok(spec) => spec,
        Err(why) => return Ok(skipped(format!("{}: {why}", subject.word))),
    };
    if let Some(reason) = super::apply(&setting.kernel, modes.as_deref_mut())? {
        return Ok(skipped(reason));
    }
    let recording = folder.join("replay.hkm");
    // The allocator reads the machine's mode, which is that of the setting.
    match record_replay(spec, &recording, None) {
        Err(ValidateError::Recorder(why)) if is_refused(&why) => return Ok(skipped(why.to_string())),
        // A library that crashes leaves the rows of the others.
        Err(why @ ValidateError::Replay(_)) => return Ok(skipped(format!("{}: {why}", subject.word))),
        recorded => recorded.map_err(|why| ValidateError::of_replay(subject.word, &spec.trace, why))?,
    };
    let options = Options { listener: &Unannounced(options.listener), ..*options };
    let row = super::validate(&Recorded::open(&recording)?, setting, &options, modes, folder)?;
    Ok(Row { file: subject.name.to_string(), allocator: label, command: command(subject), ..row })
}

/// Is not told which program runs: it would be named by a temporary file.
struct Unannounced<'a>(&'a dyn Listener);

impl Listener for Unannounced<'_> {
    fn note(&self, _: &str) {}

    fn warn(&self, text: &str) {
        self.0.warn(text);
    }
}

/// The replay as a command.
fn command(subject: &ReplaySubject<'_>) -> Vec<String> {
    ["hksim", "replay", subject.name, "--on", subject.word].map(str::to_string).to_vec()
}

/// Whether this machine does not permit to record.
fn is_refused(why: &MemoryRecordError) -> bool {
    use MemoryRecordError::{FaultsForbidden, NotPermitted, TracingForbidden};
    matches!(why, NotPermitted { .. } | FaultsForbidden { .. } | TracingForbidden { .. })
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
